package agent

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/journal"
)

func TestJobAttrs(t *testing.T) {
	for key, want := range map[string]string{
		"slurm/17":       "[job 17 system slurm]",
		"htcondor/3.0":   "[job 3.0 system htcondor]",
		"pbs/7.master/x": "[job 7.master/x system pbs]",
		"":               "[job an-id]",
	} {
		if got := fmt.Sprint(journal.JobAttrs(key, "an-id")); got != want {
			t.Errorf("%q: %s, want %s", key, got, want)
		}
	}
}

func TestEndLevel(t *testing.T) {
	for _, c := range []struct {
		err  error
		want slog.Level
	}{
		{nil, slog.LevelInfo},
		{errCallerGone, slog.LevelInfo},
		{fmt.Errorf("waiting: %w", errGivenBack), slog.LevelInfo},
		{&farm.Error{Kind: farm.NotFound}, slog.LevelInfo},
		{&farm.Error{Kind: farm.Unavailable}, slog.LevelWarn},
		{&farm.Error{Kind: farm.Internal}, slog.LevelWarn},
		{errors.New("disk"), slog.LevelWarn},
	} {
		if got := endLevel(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

// TestJobsAreFound has the log of a job say which it is, whose, and in which VM.
func TestJobsAreFound(t *testing.T) {
	f := newFarmhouse(t)
	var text bytes.Buffer
	f.agent.log = slog.New(slog.NewTextHandler(&text, nil))
	x := f.mustAsk(f.caller("17"), api.JobRequest{})
	vm := x.until(api.EventRunning)
	x.done()
	f.close()
	for line := range strings.Lines(text.String()) {
		if strings.Contains(line, "job over") {
			for _, want := range []string{"level=INFO", "vm=" + vm.Name, "user=" + vm.User, "job=17 system=slurm"} {
				if !strings.Contains(line, want) {
					t.Errorf("%s lacks %s", line, want)
				}
			}
			return
		}
	}
	t.Errorf("no job is over in\n%s", text.String())
}

func TestAlive(t *testing.T) {
	f := newFarmhouse(t)
	h := hung{f.host.Open(), make(chan struct{})}
	defer close(h.answers)
	f.close()
	client := f.serve(h) // libvirt hangs, and the agent does not
	f.eventually("the agent is alive", func() error {
		_, err := client.Alive(t.Context())
		return err
	})
}

// TestNotAlive has a loop that stands still, and a lock that is held for good.
func TestNotAlive(t *testing.T) {
	a := newFarmhouse(t).agent
	ask := func() error { return routes{a}.getAlive(httptest.NewRecorder(), nil, Caller{}) }
	a.watch.watching.Turned(time.Now().Add(-2 * aliveWithin))
	if err := ask(); !farm.IsCode(err, CodeHung) {
		t.Errorf("with a loop that stands still: %v", err)
	}
	a.watch.watching.Turned(time.Now())
	a.mu.Lock()
	answer := make(chan error, 1)
	go func() { answer <- ask() }()
	select {
	case err := <-answer:
		t.Errorf("with a lock that is held: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	a.mu.Unlock()
	if err := <-answer; err != nil {
		t.Error(err)
	}
}
