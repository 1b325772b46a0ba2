package runner

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/guest"
)

// giveUpWithin is how soon a second ctrl-C must follow the first to give up.
const giveUpWithin = 3 * time.Second

// passSignals hands signals to the job until ctx ends or stop is called. Those that come later are dropped: the process
// ends, and to give each of them its own action again takes longer than the rest of that.
func (j *Job) passSignals(ctx context.Context) (stop func()) {
	got := make(chan os.Signal, 16)
	signal.Notify(got, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGWINCH)
	if j.batch != nil {
		signal.Notify(got, batchSignals...)
	}
	if j.process.Ignores(syscall.SIGQUIT) { // else the runtime ends us by it, as the default action is
		signal.Notify(got, syscall.SIGQUIT)
	}
	j.takeMore = sync.OnceFunc(func() {
		if j.batch != nil {
			go signal.Notify(got, realTimeSignals()...)
		}
	})
	go j.stopping.follow(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		j.followSignals(ctx, got)
	}()
	return func() {
		j.leave(nil)
		<-done
	}
}

// followSignals does what signals want until ctx ends, or somebody is impatient. Before a batch job nobody sits.
func (j *Job) followSignals(ctx context.Context, got <-chan os.Signal) {
	var lastInterrupt time.Time
	impatient := j.batch == nil && !j.process.Ignores(syscall.SIGINT) // somebody may be
	for {
		select {
		case s := <-got:
			now := time.Now()
			if s == syscall.SIGINT && now.Sub(lastInterrupt) < giveUpWithin && impatient {
				j.leave(signalled{syscall.SIGINT})
				return
			}
			if s == syscall.SIGINT {
				lastInterrupt = now
			}
			j.signal(s.(syscall.Signal))
		case <-ctx.Done():
			return
		}
	}
}

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

// early reports whether a signal waits for a batch job's command to run: by default they would end it, and they are
// sent at a time of their own, so a VM that takes long to start must not be the reason. Those by which a job is ended
// end the wait.
func early(s syscall.Signal) bool {
	return s != syscall.SIGINT && s != syscall.SIGTERM && s != syscall.SIGHUP && s != syscall.SIGQUIT
}

// signal does what a signal wants. One that our caller had us ignore, as nohup does, is the command's too: the command
// ignores it, unless it chooses otherwise.
func (j *Job) signal(s syscall.Signal) {
	switch s {
	case syscall.SIGWINCH:
		if rows, cols, err := terminalSize(j.opts.Stdin); err == nil && j.request.Terminal != nil {
			j.send(guest.HostMessage{Resize: &guest.Size{Rows: rows, Cols: cols}})
		}
	default:
		if j.running() || j.batch != nil && early(s) { // the session keeps it until the job runs
			j.send(guest.HostMessage{Signal: int(s)})
		} else if s != syscall.SIGUSR1 && s != syscall.SIGUSR2 && !j.process.Ignores(s) {
			j.leave(signalled{s}) // nothing runs yet that could take it
		}
	}
}

func (j *Job) vmName() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.vm == nil {
		return ""
	}
	return j.vm.Name
}
