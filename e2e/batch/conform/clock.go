package conform

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/grange-project/grange/e2e/lab"
)

// thawNoticed is the longest until the agent has noticed that a QEMU goes on that somebody else froze or stopped.
const thawNoticed = 5 * time.Second

// clockLoop is the part of a job's loop that tells the time whenever clock asks for it. $asked is 1 at first.
func (t *try) clockLoop() string {
	return `if [ -e ` + t.file("clock-") + `$asked ]; then
		echo clock $asked $(` + lab.TellTime + `)
		asked=$((asked+1))
	fi
`
}

// clock asks a job with clockLoop for its time.
type clock struct {
	*try
	id    string
	asked int // how often
}

// off is how far the guest's clock is off the host's, at least.
func (c *clock) off(ctx context.Context) (time.Duration, error) {
	c.asked++
	asked := time.Now()
	if err := os.WriteFile(c.file(fmt.Sprintf("clock-%d", c.asked)), nil, 0o644); err != nil {
		return 0, err
	}
	var line string
	err := until(ctx, "a job tells its time", func() (ended bool) {
		out, _ := c.Output(c.id)
		_, rest, _ := strings.Cut(out, fmt.Sprintf("clock %d ", c.asked))
		line, _, ended = strings.Cut(rest, "\n")
		return ended
	})
	came := time.Now()
	if err != nil {
		return 0, err
	}
	return lab.ClockOff(asked, came, line)
}

// right fails unless the clock is right, or becomes so within some time of the first answer.
func (c *clock) right(ctx context.Context, after time.Duration) error {
	off, err := c.off(ctx)
	for end := time.Now().Add(after); err == nil && off > lab.ClockNear && time.Now().Before(end); {
		off, err = c.off(ctx)
	}
	if err == nil && off > lab.ClockNear {
		err = fmt.Errorf("the guest's clock is off by %v", off)
	}
	return err
}
