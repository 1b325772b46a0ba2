// Package runner runs one command in a VM of its own, as `grange exec` does once its command line is parsed: it asks
// the host's agent for the VM, joins the command with files, directories and signals of this process, says what is
// waited for, and returns how the command ended. In the place of a batch system's job, that is as the system expects.
package runner

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/inherited"
	"github.com/grange-project/grange/internal/steps"
)

// Options are what a job needs here, beside what the agent is asked for.
type Options struct {
	Socket   string        // of the agent
	Binds    []farm.Bind   // directories that the job sees, as ParseBind returns them
	Publish  []Published   // ports of the VM that the user of this process may connect to
	Terminal bool          // the job has the terminal that is Stdin
	Limit    time.Duration // the job gets TERM after this time, and is ended 30 s later; 0: there is no limit
	Batch    *Batch        // how to be the job of a batch system; nil: it is none

	Stdin, Stdout, Stderr *os.File // the job's

	Notes   io.Writer          // text for people: what is waited for, and trouble
	Events  func(api.JobEvent) // is called with what the agent tells, which is then not in Notes; nil: it is
	Quiet   bool               // what is waited for is not told
	Verbose bool               // Notes get the phases with their times, and what the site's policy set
}

// Result is how a job ended.
type Result struct {
	Status int            // exit status: the job's, or one that says why there is none
	Signal syscall.Signal // that this process is to die of, see Die; 0: it exits with Status
	Exit   *api.Exit      // how the command ended; nil: it was not started, or nobody knows
	Err    error          // why there is no Exit, or why output of the job was lost
	Note   error          // why Status is another one than the job's, or a batch job is not queued again
	Phases []api.Phase    // of the VM's end, and the total
}

// Exit statuses beside those of package batch and the job's own.
const (
	exitFailed = 1
	exitUsage  = 2 // the request makes no sense
)

// Job asks the agent for a VM, joins our standard files with the job's, and passes signals on. The agent may be killed
// and restarted at any time; the streams go past it and do not notice.
type Job struct {
	opts        Options
	request     api.JobRequest
	process     guest.Process // the state in which we were started
	binds       []bind
	batch       *Batch // as the agent completed it; nil: we are no batch job
	stdin       io.Reader
	script      string        // path of a batch job's script, as its shell reads it from stdin; "": it does not
	waitTimeout time.Duration // how long to look for an agent
	notes       *notes        // why the job has not started
	out         *printer
	stopping    *stopping

	client  *api.Client
	session *guest.Session
	ctx     context.Context         // of Run
	leave   context.CancelCauseFunc // gives up
	result  chan outcome            // the first one counts
	told    chan struct{}           // closed when the agent has told of the end

	asked    []bind      // by flags
	step     *steps.Task // that we are; nil: we are none
	stepping sync.Once   // steps of the batch job are served
	use      use         // by the user
	served   sync.WaitGroup

	tellOnce sync.Once
	mu       sync.Mutex
	vm       *api.VM
	oneFS    bool     // binds show nothing that is mounted below them
	link     net.Conn // to the job port
	doors    doors    // of Options.Publish
	started  bool     // the session runs
	left     bool     // the session is over, and its port another one's
	takeMore func()   // real-time signals: to take them all needs milliseconds, while the VM is made
	writeErr error    // our own output could not be written
}

// outcome is how it went: an exit status, or why there is none.
type outcome struct {
	status int
	exit   *api.Exit
	err    error
}

// New returns the job of a request, whose Env are variables to set on top of our own. It fills in what follows from the
// options and this process: ID, environment, binds, terminal and, where it is "", the working directory. An error is of
// a request that makes no sense; nothing was asked of the agent. Of a batch job, it may read a line of Stdin.
func New(request api.JobRequest, o Options) (*Job, error) {
	binds := newBinds(o.Binds)
	request.ID, request.Home, request.Env = api.NewID(), os.Getenv("HOME"), environment(request.Env)
	process := inherited.Process()
	if !o.Terminal {
		process.Null, process.Closed = inherited.Files(o.Stdin, o.Stdout, o.Stderr)
	}
	request.Process = processOf(process)
	request.Binds, request.OneOutput = targets(binds), inherited.OneFile(o.Stdout, o.Stderr)
	j := &Job{opts: o, request: request, process: process, binds: binds, asked: binds, stdin: o.Stdin,
		client: api.NewClient(o.Socket), session: guest.NewSession(request.ID), waitTimeout: agentTimeout,
		notes: newNotes(o.Notes), result: make(chan outcome, 8), told: make(chan struct{}),
		use: make(use, 1)}
	j.out = &printer{opts: &j.opts, notes: j.notes}
	j.stopping = &stopping{client: j.client, vmName: j.vmName, out: j.out, self: stopsSelf(process)}
	j.notes.event, j.notes.quiet = o.Events, o.Quiet
	var err error
	if j.request.Terminal, err = terminalOf(o); err != nil {
		return nil, err
	}
	if o.Batch != nil {
		return j, j.replace(*o.Batch)
	}
	if j.request.Dir == "" {
		j.request.Dir, j.request.DefaultDir = workdir(binds)
	}
	return j, nil
}

// Run runs the job, once, and returns how it ended. It takes the signals of this process, for the job. When ctx ends,
// the VM is given back.
func (j *Job) Run(ctx context.Context) Result {
	ctx, cancel := context.WithCancelCause(ctx)
	j.ctx, j.leave = ctx, cancel
	defer cancel(nil)
	began := time.Now()
	signal.Ignore(syscall.SIGPIPE) // a reader that goes away is told to the job
	stopSignals := j.passSignals(ctx)
	defer stopSignals()
	restore := func() {}
	if j.request.Terminal != nil {
		restore = rawTerminal(j.opts.Stdin)
	}
	over := make(chan struct{})
	go j.notes.remind(over)
	defer close(over)
	go j.ask(ctx)

	o := j.outcome(ctx)
	clean := j.giveBack()
	cancel(nil)
	j.served.Wait() // ends them, in bounded time
	restore()
	return j.resultOf(o, append(clean,
		api.Phase{Name: "total", Milliseconds: float64(time.Since(began).Microseconds()) / 1000}))
}

// outcome waits for the end of the job, or of ctx.
func (j *Job) outcome(ctx context.Context) outcome {
	select {
	case o := <-j.result:
		j.awaitEnd(o)
		return o
	case <-ctx.Done():
		return givenUp(context.Cause(ctx))
	}
}

// resultOf returns what the caller is told of an outcome. A batch job's is what its batch system is to make of it.
func (j *Job) resultOf(o outcome, phases []api.Phase) Result {
	if j.opts.Verbose && j.opts.Events == nil {
		for _, p := range phases {
			j.out.phase(p)
		}
	}
	result := Result{Status: o.status, Exit: o.exit, Err: o.err, Phases: phases}
	if j.batch != nil {
		e := j.batch.end(o, os.Getenv, os.ReadFile)
		result.Status, result.Signal, result.Note = e.status, e.signal, e.say
	}
	return result
}

// ask completes the request and asks for the job.
func (j *Job) ask(ctx context.Context) {
	if j.batch != nil || j.request.Pool != "" {
		j.notes.wait("the agent on " + j.opts.Socket + " says what the job is to have")
		if err := j.prepare(ctx); err != nil {
			j.finish(outcome{status: unpreparedStatus(err), err: err})
			return
		}
	}
	if err := j.becomeStep(); err != nil {
		j.finish(outcome{status: exitUsage, err: err})
		return
	}
	j.notes.wait("the directories to bind are opened")
	if err := j.openBinds(); err != nil {
		j.finish(outcome{status: unpreparedStatus(err), err: err})
		return
	}
	if err := j.publish(ctx); err != nil {
		j.finish(outcome{status: unpreparedStatus(err), err: err})
		return
	}
	if j.request.Heartbeats {
		go j.heartbeat(ctx)
	}
	if j.request.Pool != "" {
		go j.use.report(ctx, j.client.Pools(), j.request.ID)
	}
	j.request.Raw = (*api.Raw)(guest.RawOf(j.request.Argv, j.request.Env, j.request.Dir, bindTargets(j.request.Binds)))
	j.keepAsking(ctx)
}

// signalled is the reason when a signal ends us before there is a job, or makes us give up.
type signalled struct{ syscall.Signal }

func (s signalled) Error() string { return "given up on signal: " + s.Signal.String() }

func givenUp(cause error) outcome {
	var s signalled
	if errors.As(cause, &s) {
		return outcome{status: 128 + int(s.Signal), err: cause}
	}
	return outcome{status: exitFailed, err: cause}
}

func (j *Job) finish(o outcome) {
	select {
	case j.result <- o:
	default:
	}
}

// startClock ends the job when its time is over: first by TERM, then for good.
func (j *Job) startClock() {
	if j.opts.Limit == 0 {
		return
	}
	time.AfterFunc(j.opts.Limit, func() {
		j.out.printf("time limit of %v reached", j.opts.Limit)
		j.send(guest.HostMessage{Signal: int(syscall.SIGTERM)})
		time.AfterFunc(killGrace, func() { j.leave(signalled{syscall.SIGKILL}) })
	})
}

// killGrace is how long a job may take to end after TERM when its time is over; Slurm's KillWait has the same default.
const killGrace = 30 * time.Second

// giveBack returns the VM, or our place in it, and waits a little for the agent to clean up: it does so in any case
// when we are gone.
func (j *Job) giveBack() []api.Phase {
	j.mu.Lock()
	j.left = true
	j.doors.close()
	j.mu.Unlock()
	j.session.Close()
	j.disconnect() // the next task of our batch job may get this port
	if j.batch == nil {
		j.notes.open()
		j.notes.wait("the agent ends the VM")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	end, err := j.client.Done(ctx, j.request.ID)
	if err != nil {
		return nil
	}
	return end.Phases
}

// awaitEnd gives the agent a moment to tell of an end that the guest told us of: given back before, the VM goes, and
// the job's phase is never told.
func (j *Job) awaitEnd(o outcome) {
	if o.exit == nil {
		return
	}
	select {
	case <-j.told:
	case <-time.After(200 * time.Millisecond): // the agent may be away
	}
}
