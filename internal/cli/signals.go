package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/guest"
)

// giveUpWithin is how soon a second ctrl-C must follow the first to give up.
const giveUpWithin = 3 * time.Second

// passSignals hands signals to the job until ctx ends or stop is called. Those that come later are dropped: the process
// ends, and to give each of them its own action again takes longer than the rest of that.
func (r *runner) passSignals(ctx context.Context) (stop func()) {
	got := make(chan os.Signal, 16)
	signal.Notify(got, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT)
	if r.batch() {
		signal.Notify(got, batchSignals...)
	}
	r.takeMore = sync.OnceFunc(func() {
		if r.batch() {
			go signal.Notify(got, realTimeSignals()...)
		}
	})
	go r.followStops(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var lastInterrupt time.Time
		for {
			select {
			case s := <-got:
				now := time.Now()
				// nobody sits there and is impatient
				if s == syscall.SIGINT && now.Sub(lastInterrupt) < giveUpWithin && !r.batch() {
					r.leave(signalled{syscall.SIGINT})
					return
				}
				if s == syscall.SIGINT {
					lastInterrupt = now
				}
				r.signal(s.(syscall.Signal))
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		r.leave(nil)
		<-done
	}
}

func (r *runner) batch() bool { return r.request.Batch != "" }

// batchSignals are those that batch systems can be told to send to jobs, beside those that every command gets and
// realTimeSignals. Not among them: what the kernel sends for a fault of the program, and what cannot be caught.
var batchSignals = []os.Signal{syscall.SIGQUIT, syscall.SIGALRM, syscall.SIGVTALRM, syscall.SIGXCPU, syscall.SIGXFSZ,
	syscall.SIGIO, syscall.SIGPWR}

func realTimeSignals() []os.Signal {
	var all []os.Signal
	for s := syscall.Signal(34); s <= 64; s++ { // glibc keeps 32 and 33
		all = append(all, s)
	}
	return all
}

// early tells the signals that wait for a batch job's command to run: by default they would end it, and they are sent
// at a time of their own, so a VM that takes long to start must not be the reason. Those by which a job is ended end
// the wait.
func early(s syscall.Signal) bool {
	return s != syscall.SIGINT && s != syscall.SIGTERM && s != syscall.SIGHUP && s != syscall.SIGQUIT
}

func (r *runner) signal(s syscall.Signal) {
	switch s {
	case syscall.SIGTSTP, syscall.SIGCONT:
		r.wantStopped(s == syscall.SIGTSTP)
	case syscall.SIGWINCH:
		if rows, cols, err := terminalSize(); err == nil && r.request.Terminal != nil {
			r.send(guest.HostMessage{Resize: &guest.Size{Rows: rows, Cols: cols}})
		}
	default:
		if r.running() || r.batch() && early(s) { // the session keeps it until the job runs
			r.send(guest.HostMessage{Signal: int(s)})
		} else if s != syscall.SIGUSR1 && s != syscall.SIGUSR2 {
			r.leave(signalled{s}) // nothing runs yet that could take it
		}
	}
}

// stopping is what TSTP and CONT want of us. Signals set it, and followStops makes it so: a CONT must not wait behind a
// stop that asks the agent.
type stopping struct {
	wanted    bool
	continued time.Time       // when the last CONT was seen
	turn      context.Context // ends when it is wanted otherwise
	turned    context.CancelFunc
	suspended bool // the agent was asked to suspend the VM, whatever it answered
}

func newStopping() (s stopping) {
	s.turn, s.turned = context.WithCancel(context.Background())
	return s
}

// justBehind a CONT a TSTP does not count. Of signals that wait together, as those of a process that was stopped,
// os/signal hands out the lower number first, which is CONT's: the TSTP may have come before. One stop too few is seen
// by whoever wanted it, one too many lasts for ever.
const justBehind = 100 * time.Millisecond

// wantStopped notes a signal. What is wanted already changes nothing: of two TSTP in a row, one CONT lets us go on.
func (r *runner) wantStopped(stopped bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !stopped {
		r.stopping.continued = time.Now()
	}
	if r.stopping.wanted == stopped || stopped && time.Since(r.stopping.continued) < justBehind {
		return
	}
	r.stopping.wanted = stopped
	r.stopping.turned()
	r.stopping.turn, r.stopping.turned = context.WithCancel(context.Background())
}

// followStops does what TSTP and CONT want until ctx ends.
func (r *runner) followStops(ctx context.Context) {
	for ctx.Err() == nil {
		r.mu.Lock()
		stopped, turn := r.stopping.wanted, r.stopping.turn
		r.mu.Unlock()
		turn, release := context.WithCancel(turn)
		leaving := context.AfterFunc(ctx, release)
		if stopped {
			r.stop(turn)
		} else {
			r.goOn(turn)
		}
		<-turn.Done()
		leaving()
		release()
	}
}

// suspendWithin is how long a stop waits for the agent. Then we stop all the same, as whoever sent the signal expects.
const suspendWithin = 10 * time.Second

// stop suspends the VM, then ourselves, as a shell's job control expects; unless that is not wanted any more by then.
func (r *runner) stop(turn context.Context) {
	if name := r.vmName(); name != "" {
		r.mu.Lock()
		r.stopping.suspended = true
		r.mu.Unlock()
		ctx, cancel := context.WithTimeout(turn, suspendWithin)
		_, err := r.client.Suspend(ctx, name)
		cancel()
		if err != nil && turn.Err() == nil {
			fmt.Fprintf(r.app.err, "grange: suspend: %v\n", err)
		}
	}
	if turn.Err() == nil {
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
}

// goOn resumes a VM that we had suspended. An agent that is away is asked again: the job must not stand still for ever.
func (r *runner) goOn(turn context.Context) {
	r.mu.Lock()
	suspended := r.stopping.suspended
	r.mu.Unlock()
	for told := false; suspended && turn.Err() == nil; {
		_, err := r.client.Resume(turn, r.vmName())
		if turn.Err() != nil {
			return
		}
		if err != nil && !told {
			fmt.Fprintf(r.app.err, "grange: resume: %v\n", err)
			told = true
		}
		if err == nil || errors.As(err, new(*api.Problem)) {
			r.mu.Lock()
			r.stopping.suspended = false
			r.mu.Unlock()
			return
		}
		select {
		case <-time.After(time.Second):
		case <-turn.Done():
		}
	}
}

func (r *runner) vmName() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.vm == nil {
		return ""
	}
	return r.vm.Name
}
