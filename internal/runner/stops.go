package runner

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/sleep"
)

// stopping has the VM, and this process, do what TSTP and CONT say.
type stopping struct {
	client *api.Client
	vmName func() string // "" before there is one
	out    *printer
	// TSTP stops this process; otherwise only the VM, as in an orphaned process group, or where it is ignored
	self bool

	suspended bool // the agent was asked to suspend the VM, whatever it answered; follow's alone
}

// follow does what TSTP and CONT say until ctx ends.
func (s *stopping) follow(ctx context.Context) {
	tstp := newStopSignal()
	if tstp == nil {
		return
	}
	go tstp.follow(ctx)
	for tstp.until(ctx, true) {
		s.suspend(ctx)
		for tstp.pending() && ctx.Err() == nil {
			if s.self && !orphaned() {
				tstp.act()
			} else {
				tstp.until(ctx, false)
			}
		}
		s.goOn(ctx, tstp.pending)
	}
}

// agentWithin is how long a stop waits for the agent. Then we stop all the same, as whoever sent the signal expects.
// The answer to one request is awaited before the next is sent, for the agent may take up two requests in any order.
const agentWithin = 10 * time.Second

// suspend suspends the VM.
func (s *stopping) suspend(ctx context.Context) {
	name := s.vmName()
	if name == "" {
		return
	}
	s.suspended = true
	within, cancel := context.WithTimeout(ctx, agentWithin)
	defer cancel()
	if _, err := s.client.Suspend(within, name); err != nil && ctx.Err() == nil {
		s.out.printf("suspend: %v", err)
	}
}

// goOn resumes a VM that we had suspended, unless it is to stop again. An agent that is away is asked again: the job
// must not stand still for ever.
func (s *stopping) goOn(ctx context.Context, stops func() bool) {
	for told := false; s.suspended && ctx.Err() == nil && !stops(); {
		within, cancel := context.WithTimeout(ctx, agentWithin)
		_, err := s.client.Resume(within, s.vmName())
		cancel()
		if err == nil || errors.As(err, new(*api.Problem)) {
			s.suspended = false
		}
		if err != nil && !told && ctx.Err() == nil {
			s.out.printf("resume: %v", err)
			told = true
		}
		if s.suspended {
			sleep.For(ctx, time.Second)
		}
	}
}

// stopsSelf reports whether TSTP stops a process that was started so.
func stopsSelf(p guest.Process) bool {
	return !p.Ignores(syscall.SIGTSTP) && !p.Blocks(syscall.SIGTSTP)
}
