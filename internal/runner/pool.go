package runner

import (
	"context"
	"io"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/sleep"
)

// PoolVariable names the pool of a batch job that `grange shell` submits. It is a wish, as a flag is: the agent of the
// host where the job runs knows whom its pools are for.
const PoolVariable = "GRANGE_POOL"

// use is what the user of a job does; anything counts. It is made by make.
type use chan struct{}

// noted is called at anything that the user does.
func (u use) noted() {
	select {
	case u <- struct{}{}:
	default: // one that is not reported yet is enough
	}
}

// report reports it to the agent, not more often than it wants to know, until ctx ends.
func (u use) report(ctx context.Context, pools api.Pools, job string) {
	for {
		select {
		case <-u:
		case <-ctx.Done():
			return
		}
		once, cancel := context.WithTimeout(ctx, 5*time.Second)
		pools.Active(once, job) // an agent that is away begins the time anew when it comes
		cancel()
		if sleep.For(ctx, api.ActiveInterval) != nil {
			return
		}
	}
}

// typing is the job's input, by which its user is active.
type typing struct {
	io.Reader
	use use
}

func (t typing) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	if n > 0 {
		t.use.noted()
	}
	return n, err
}
