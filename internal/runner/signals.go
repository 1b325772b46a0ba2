package runner

import (
	"context"
	"errors"
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
func (j *Job) passSignals(ctx context.Context) (stop func()) {
	got := make(chan os.Signal, 16)
	signal.Notify(got, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT)
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
	case syscall.SIGTSTP, syscall.SIGCONT:
		j.stopping.want(s == syscall.SIGTSTP)
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

// stopping is what TSTP and CONT want of us. Signals set it, and follow makes it so: a CONT must not wait behind a
// stop that asks the agent.
type stopping struct {
	client *api.Client
	vmName func() string // "" before there is one
	out    *printer

	mu        sync.Mutex
	wanted    bool
	continued time.Time       // when the last CONT was seen
	turn      context.Context // ends when it is wanted otherwise
	turned    context.CancelFunc
	suspended bool // the agent was asked to suspend the VM, whatever it answered
}

func newStopping(client *api.Client, vmName func() string, out *printer) *stopping {
	s := &stopping{client: client, vmName: vmName, out: out}
	s.turn, s.turned = context.WithCancel(context.Background())
	return s
}

// justBehind a CONT a TSTP does not count. Of signals that wait together, as those of a process that was stopped,
// os/signal hands out the lower number first, which is CONT's: the TSTP may have come before. One stop too few is seen
// by whoever wanted it, one too many lasts for ever.
const justBehind = 100 * time.Millisecond

// want notes a signal. What is wanted already changes nothing: of two TSTP in a row, one CONT lets us go on.
func (s *stopping) want(stopped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !stopped {
		s.continued = time.Now()
	}
	if s.wanted == stopped || stopped && time.Since(s.continued) < justBehind {
		return
	}
	s.wanted = stopped
	s.turned()
	s.turn, s.turned = context.WithCancel(context.Background())
}

// follow does what TSTP and CONT want until ctx ends.
func (s *stopping) follow(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		stopped, turn := s.wanted, s.turn
		s.mu.Unlock()
		turn, release := context.WithCancel(turn)
		leaving := context.AfterFunc(ctx, release)
		if stopped {
			s.stop(turn)
		} else {
			s.goOn(turn)
		}
		<-turn.Done()
		leaving()
		release()
	}
}

// suspendWithin is how long a stop waits for the agent. Then we stop all the same, as whoever sent the signal expects.
const suspendWithin = 10 * time.Second

// stop suspends the VM, then ourselves, as a shell's job control expects; unless that is not wanted any more by then.
func (s *stopping) stop(turn context.Context) {
	if name := s.vmName(); name != "" {
		s.mu.Lock()
		s.suspended = true
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(turn, suspendWithin)
		_, err := s.client.Suspend(ctx, name)
		cancel()
		if err != nil && turn.Err() == nil {
			s.out.printf("suspend: %v", err)
		}
	}
	if turn.Err() == nil {
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
}

// goOn resumes a VM that we had suspended. An agent that is away is asked again: the job must not stand still for ever.
func (s *stopping) goOn(turn context.Context) {
	s.mu.Lock()
	suspended := s.suspended
	s.mu.Unlock()
	for told := false; suspended && turn.Err() == nil; {
		_, err := s.client.Resume(turn, s.vmName())
		if turn.Err() != nil {
			return
		}
		if err != nil && !told {
			s.out.printf("resume: %v", err)
			told = true
		}
		if err == nil || errors.As(err, new(*api.Problem)) {
			s.mu.Lock()
			s.suspended = false
			s.mu.Unlock()
			return
		}
		select {
		case <-time.After(time.Second):
		case <-turn.Done():
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
