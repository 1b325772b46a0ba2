package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/guest"
)

// giveUpWithin is how soon a second ctrl-C must follow the first to give up.
const giveUpWithin = 3 * time.Second

// passSignals hands signals to the job until ctx ends or stop is called.
func (r *runner) passSignals(ctx context.Context) (stop func()) {
	got := make(chan os.Signal, 16)
	signal.Notify(got, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
		syscall.SIGTSTP, syscall.SIGCONT)
	if r.batch() {
		signal.Notify(got, batchSignals()...)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var lastInterrupt time.Time
		for {
			select {
			case s := <-got:
				now := time.Now()
				if s == syscall.SIGINT && now.Sub(lastInterrupt) < giveUpWithin && !r.batch() { // nobody sits there and is impatient
					r.leave(signalled{syscall.SIGINT})
					return
				}
				if s == syscall.SIGINT {
					lastInterrupt = now
				}
				r.signal(ctx, s.(syscall.Signal))
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		signal.Stop(got)
		r.leave(nil)
		<-done
	}
}

func (r *runner) batch() bool { return r.request.Batch != "" }

// batchSignals are those that batch systems can be told to send to jobs, beside those that every command gets. Not among them: what the
// kernel sends for a fault of the program, and what cannot be caught.
func batchSignals() []os.Signal {
	all := []os.Signal{syscall.SIGQUIT, syscall.SIGALRM, syscall.SIGVTALRM, syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGIO, syscall.SIGPWR}
	for s := syscall.Signal(34); s <= 64; s++ { // real-time signals; glibc keeps 32 and 33
		all = append(all, s)
	}
	return all
}

// early tells the signals that wait for a batch job's command to run: by default they would end it, and they are sent at a time of their own, so
// a VM that takes long to start must not be the reason. Those by which a job is ended end the wait.
func early(s syscall.Signal) bool {
	return s != syscall.SIGINT && s != syscall.SIGTERM && s != syscall.SIGHUP && s != syscall.SIGQUIT
}

func (r *runner) signal(ctx context.Context, s syscall.Signal) {
	switch s {
	case syscall.SIGTSTP:
		r.stop(ctx)
	case syscall.SIGCONT:
		r.goOn(ctx)
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

// stop suspends the VM, then ourselves, as a shell's job control expects.
func (r *runner) stop(ctx context.Context) {
	if name := r.vmName(); name != "" {
		if _, err := r.client.Suspend(ctx, name); err != nil {
			fmt.Fprintf(r.app.err, "grange: suspend: %v\n", err)
		}
		r.mu.Lock()
		r.suspended = true
		r.mu.Unlock()
	}
	syscall.Kill(os.Getpid(), syscall.SIGSTOP)
}

func (r *runner) goOn(ctx context.Context) {
	r.mu.Lock()
	suspended := r.suspended
	r.suspended = false
	r.mu.Unlock()
	if !suspended {
		return
	}
	if _, err := r.client.Resume(ctx, r.vmName()); err != nil {
		fmt.Fprintf(r.app.err, "grange: resume: %v\n", err)
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
