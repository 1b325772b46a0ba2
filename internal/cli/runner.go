package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/steps"
)

// runner is one `grange exec`: it asks the agent for a VM, joins our standard files with the job's, and passes signals
// on. The agent may be killed and restarted at any time; the streams go past it and do not notice.
type runner struct {
	app      *app
	request  api.JobRequest
	binds    []bindSource
	limit    time.Duration
	verbose  bool
	stdin    io.Reader
	prepare  func(context.Context) error // completes the request when the agent is there; nil: it is complete
	judge    func(outcome) outcome       // has the last word on the exit status; nil: it is as it is
	patience time.Duration               // how long to look for an agent
	notes    *notes                      // why the job has not started

	client  *api.Client
	session *guest.Session
	ctx     context.Context         // of run
	leave   context.CancelCauseFunc // gives up
	result  chan outcome            // the first one counts
	told    chan struct{}           // closed when the agent has told of the end

	asked    []bindSource // by flags
	step     *steps.Task  // that we are; nil: we are none
	stepping sync.Once    // steps of the batch job are served
	emulated sync.Once    // it was said that the VM is emulated
	served   sync.WaitGroup

	tellOnce sync.Once
	mu       sync.Mutex
	vm       *api.VM
	oneFS    bool     // binds show nothing that is mounted below them
	link     net.Conn // to the job port
	started  bool     // the session runs
	left     bool     // the session is over, and its port another one's
	stopping stopping
	takeMore func() // real-time signals: to take them all needs milliseconds, while the VM is made
	writeErr error  // our own output could not be written
}

// outcome is how it went: an exit status, or why there is none.
type outcome struct {
	status int
	exit   *api.Exit
	err    error
}

func newRunner(a *app, r api.JobRequest, binds []bindSource) *runner {
	return &runner{app: a, request: r, binds: binds, asked: binds, stdin: os.Stdin, client: a.client(),
		session: guest.NewSession(r.ID), patience: agentPatience, notes: newNotes(a.err), result: make(chan outcome, 8),
		told: make(chan struct{}), stopping: newStopping()}
}

// run returns how it went; it has been reported.
func (r *runner) run() outcome {
	ctx, cancel := context.WithCancelCause(context.Background())
	r.ctx, r.leave = ctx, cancel
	defer cancel(nil)
	began := time.Now()
	signal.Ignore(syscall.SIGPIPE) // a reader that goes away is told to the job
	stopSignals := r.passSignals(ctx)
	defer stopSignals()
	restore := r.rawTerminal()
	r.notes.json = r.app.json
	over := make(chan struct{})
	go r.notes.remind(over)
	defer close(over)
	go r.ask(ctx)

	var o outcome
	select {
	case o = <-r.result:
		r.awaitEnd(o)
	case <-ctx.Done():
		o = givenUp(context.Cause(ctx))
	}
	clean := r.giveBack()
	cancel(nil)
	r.served.Wait() // ends them, in bounded time
	restore()
	if r.judge != nil {
		o = r.judge(o)
	}
	r.report(o, clean, time.Since(began))
	return o
}

// ask completes the request and asks for the job.
func (r *runner) ask(ctx context.Context) {
	if r.prepare != nil {
		r.notes.wait("the agent on " + r.app.socket + " says what the job was given")
		if err := r.prepare(ctx); err != nil {
			r.finish(outcome{status: r.unpreparedStatus(err), err: err})
			return
		}
	}
	if err := r.becomeStep(); err != nil {
		r.finish(outcome{status: exitUsage, err: err})
		return
	}
	r.notes.wait("the directories to bind are opened")
	if err := r.openBinds(); err != nil {
		r.finish(outcome{status: r.unpreparedStatus(err), err: err})
		return
	}
	if r.request.Beats {
		go r.beat(ctx)
	}
	r.keepAsking(ctx)
}

// beat tells the agent that we are not stopped, as our request promised. A stop that cannot be caught stops this too,
// and the VM with it.
func (r *runner) beat(ctx context.Context) {
	for wait := 10 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, api.BeatEvery) {
		began := time.Now()
		r.client.Beats(ctx, r.request.ID) // ends when the agent does not know the job yet, or goes
		if time.Since(began) > api.BeatEvery {
			wait = 10 * time.Millisecond
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// unpreparedStatus tells a request that makes no sense from a host on which it cannot be completed.
func (r *runner) unpreparedStatus(err error) int {
	problem, own := new(api.Problem), new(farm.Error)
	switch {
	case errors.As(err, &problem):
		return notStartedStatus(problem)
	case errors.As(err, &own) && own.Kind == farm.Invalid:
		return exitUsage
	}
	return batch.ExitNotStarted
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

// keepAsking holds the agent to our job, and finds the next agent when this one goes.
func (r *runner) keepAsking(ctx context.Context) {
	began, wait, told := time.Now(), 10*time.Millisecond, false
	agent := "the agent on " + r.app.socket
	r.notes.wait(agent)
	for ctx.Err() == nil {
		asked := time.Now()
		err := r.client.Job(ctx, r.request, func(e api.JobEvent) error {
			began, wait, told = time.Now(), 10*time.Millisecond, false
			return r.event(e)
		})
		if time.Since(asked) > time.Second && !errors.Is(err, api.ErrNoAgent) {
			began = time.Now() // a job in the queue hears nothing for long: the agent was there until now
		}
		r.takeMore() // also where no agent tells us anything
		problem := new(api.Problem)
		switch {
		case errors.As(err, &problem):
			r.finish(outcome{status: r.problemStatus(problem), err: problem})
			return
		case r.tooLong(err, time.Since(began)):
			r.finish(outcome{status: batch.ExitNotStarted, err: err})
			return
		}
		if !told && time.Since(began) > time.Second && !r.running() {
			r.notes.wait(agent)
			r.notes.say("waiting for %s", agent)
			told = true
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		wait = min(2*wait, time.Second)
	}
}

// running reports whether the job has our streams: then it needs no agent, and its errors are no place for our notes.
func (r *runner) running() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.started
}

// agentPatience is how long to look for an agent that has said nothing else: one that is restarted answers in seconds.
const agentPatience = 10 * time.Second

// tooLong tells when to stop looking for an agent. Once a job may run we never do. Somebody at a terminal waits for a
// VM that is there; a batch job whose VM has not been given its job goes back to its queue, for nothing of it has run.
func (r *runner) tooLong(err error, since time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	patience, waits := r.patience, r.vm == nil
	switch {
	case r.batch():
		waits = !r.request.Started
	case errors.Is(err, os.ErrNotExist): // no socket: an agent that was killed leaves one
		patience = min(patience, time.Second)
	}
	return waits && (since > patience || r.request.NoWait && r.vm == nil)
}

// problemStatus is the exit status when the agent refuses our job.
func (r *runner) problemStatus(p *api.Problem) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.request.Started { // a new agent that has lost the VM
		return batch.ExitVMLost
	}
	return notStartedStatus(p)
}

// notStartedStatus tells a request that makes no sense from one that may work elsewhere or later.
func notStartedStatus(p *api.Problem) int {
	inVM := p.Type == "grange:"+string(farm.CodeJobNotStarted) || p.Type == "grange:"+string(farm.CodeNoDirectory)
	if (p.Status == 400 || p.Status == 404) && !inVM {
		return exitUsage
	}
	return batch.ExitNotStarted
}

func (r *runner) finish(o outcome) {
	select {
	case r.result <- o:
	default:
	}
}

// event follows what the agent tells.
func (r *runner) event(e api.JobEvent) error {
	r.takeMore()
	if doing, known := waitingFor(e); known {
		r.notes.wait(doing)
	}
	r.show(e)
	switch e.Event {
	case api.EventEnded, api.EventFailed, api.EventLost:
		r.tellOnce.Do(func() { close(r.told) })
	}
	switch e.Event {
	case api.EventVM:
		return r.connect(e.VM)
	case api.EventRetry:
		r.disconnect()
	case api.EventReady:
		if r.start(); e.Steps != nil {
			r.stepping.Do(func() { r.served.Go(func() { r.serveSteps(r.ctx, e.Steps) }) })
		}
	case api.EventFailed:
		r.finish(outcome{status: notStartedStatus(e.Problem), err: e.Problem})
	case api.EventLost:
		r.finish(outcome{status: batch.ExitVMLost, err: e.Problem})
	case api.EventRunning:
		r.startClock()
	}
	return nil
}

// connect opens the job port of the VM that the agent made for us.
func (r *runner) connect(vm *api.VM) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.link != nil && (r.started || r.vm.ID == vm.ID) {
		return nil // a restarted agent tells us again
	}
	if r.link != nil {
		r.link.Close() // of an earlier attempt
		r.link = nil
	}
	link, err := net.Dial("unix", vm.JobPort)
	if err != nil {
		return nil // the VM has gone already, and the agent will say why
	}
	r.vm, r.link = vm, link
	r.oneFS = r.oneFS || vm.OneFilesystem
	return nil
}

func (r *runner) disconnect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.link != nil {
		r.link.Close()
	}
	r.link = nil
}

// start lets bytes flow: the guest is up. From here on the job may run, and never runs again elsewhere.
func (r *runner) start() {
	if r.batch() {
		r.notes.close() // not under our lock, which signals need: a note may hang on its way out
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.request.Started = true
	if r.started {
		return
	}
	if r.link == nil {
		r.finish(outcome{status: batch.ExitVMLost, err: errors.New("the job port of the VM cannot be opened")})
		return
	}
	r.started = true
	go r.attach(r.link, r.vm.JobPort)
	go r.feed()
	var outputs sync.WaitGroup
	outputs.Go(func() { r.collect(guest.StreamStdout, os.Stdout) })
	outputs.Go(func() { r.collect(guest.StreamStderr, os.Stderr) })
	one := r.oneFS
	for i, b := range r.binds {
		go func() {
			if err := b.opened.Serve(r.session.Stream(guest.StreamBind+byte(i)), b.options(one)); err != nil &&
				!errors.Is(err, guest.ErrClosed) {
				fmt.Fprintf(r.app.err, "grange: bind %s: %v\n", b.dir, err)
			}
		}()
	}
	go guest.Lines(r.session.Stream(guest.StreamMessages), guest.MaxGuestLine, func(m guest.GuestMessage) {
		if m.Exit == nil {
			return // a job that was not started: the agent says so
		}
		outputs.Wait()
		r.finish(r.exited(m.Exit))
	})
}

// attach keeps the session connected to the VM as long as there is one.
func (r *runner) attach(link net.Conn, path string) {
	for {
		r.session.AttachHost(link)
		link.Close()
		time.Sleep(50 * time.Millisecond)
		if r.hasLeft() {
			return
		}
		var err error
		for link, err = net.Dial("unix", path); err != nil; link, err = net.Dial("unix", path) {
			if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) || r.hasLeft() {
				return // QEMU has gone; the agent finds out why
			}
			time.Sleep(50 * time.Millisecond)
		}
		r.mu.Lock()
		r.link = link
		left := r.left
		r.mu.Unlock()
		if left {
			link.Close()
			return
		}
	}
}

func (r *runner) exited(e *guest.Exit) outcome {
	o := outcome{status: e.Code, exit: &api.Exit{Code: e.Code, Signal: e.Signal, User: e.User, System: e.System,
		MaxRSS: e.MaxRSS, OOMKills: e.OOMKills}}
	if e.OOMKills > 0 {
		r.outOfMemory(e.OOMKills)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.writeErr != nil {
		o.err = fmt.Errorf("output of the job was lost: %w", r.writeErr)
		if o.status == 0 {
			o.status = exitFailed
		}
	}
	return o
}

// feed carries our input to the job, no faster than it reads.
func (r *runner) feed() {
	io.Copy(r.session.Stream(guest.StreamStdin), r.stdin)
	r.session.Stream(guest.StreamStdin).CloseWrite()
}

// collect carries one output of the job to ours. When ours breaks, the job's breaks too.
func (r *runner) collect(id byte, to io.Writer) {
	stream := r.session.Stream(id)
	if _, err := io.Copy(afterNotes{to, r.notes}, stream); err != nil && !errors.Is(err, guest.ErrClosed) {
		if !errors.Is(err, syscall.EPIPE) {
			r.mu.Lock()
			r.writeErr = err
			r.mu.Unlock()
		}
		r.send(guest.HostMessage{Broken: id})
		io.Copy(io.Discard, stream)
	}
}

// afterNotes is where a job's output goes: from its first byte on there is nothing left to wait for.
type afterNotes struct {
	io.Writer
	notes *notes
}

func (w afterNotes) Write(p []byte) (int, error) {
	w.notes.close()
	return w.Writer.Write(p)
}

func (r *runner) send(m guest.HostMessage) {
	guest.WriteLine(r.session.Stream(guest.StreamMessages), m)
}

// startClock ends the job when its time is over: first by TERM, then for good.
func (r *runner) startClock() {
	if r.limit == 0 {
		return
	}
	time.AfterFunc(r.limit, func() {
		fmt.Fprintf(r.app.err, "grange: time limit of %v reached\n", r.limit)
		r.send(guest.HostMessage{Signal: int(syscall.SIGTERM)})
		time.AfterFunc(killGrace, func() { r.leave(signalled{syscall.SIGKILL}) })
	})
}

// killGrace is how long a job may take to end after TERM when its time is over; Slurm's KillWait has the same default.
const killGrace = 30 * time.Second

func (r *runner) hasLeft() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left
}

// giveBack returns the VM, or our place in it, and waits a little for the agent to clean up: it does so in any case
// when we are gone.
func (r *runner) giveBack() []api.Phase {
	r.mu.Lock()
	r.left = true
	r.mu.Unlock()
	r.session.Close()
	r.disconnect() // the next task of our batch job may get this port
	if !r.batch() {
		r.notes.open()
		r.notes.wait("the agent ends the VM")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	end, err := r.client.Done(ctx, r.request.ID)
	if err != nil {
		return nil
	}
	return end.Phases
}

// rawTerminal hands our terminal to the job, where it asked for one.
func (r *runner) rawTerminal() (restore func()) {
	if r.request.Terminal == nil {
		return func() {}
	}
	old, err := term.MakeRaw(int(os.Stdin.Fd()))
	if err != nil {
		return func() {}
	}
	return func() { term.Restore(int(os.Stdin.Fd()), old) }
}

// show prints an event where someone wants to see it: waiting and trouble always, phases with -v, everything with
// --json.
func (r *runner) show(e api.JobEvent) {
	if r.app.json {
		newJSON(r.app.err).Encode(e)
		return
	}
	if e.VM != nil && e.VM.Applied.Emulated != "" {
		r.emulated.Do(func() {
			r.notes.say("the VM is emulated, many times slower than under KVM: %s",
				e.VM.Applied.Emulated)
		})
	}
	switch {
	case e.Event == api.EventWaiting, e.Event == api.EventRetry:
		r.notes.say("%s: %s", e.Event, e.Message)
	case e.Event == api.EventWarning && e.Code == api.CodeGuestDiffers:
		r.notes.say("note: %s", e.Message)
	case !r.verbose:
	case e.Phase != nil:
		r.showPhase(*e.Phase)
	case e.VM != nil:
		fmt.Fprintf(r.app.err, "grange: vm %s on CPUs %v\n", e.VM.Name, e.VM.Plan.VCPUs)
	case e.Event == api.EventPolicy:
		fmt.Fprintf(r.app.err, "grange: policy: %s\n", e.Message)
	case e.Event == api.EventWarning:
		fmt.Fprintf(r.app.err, "grange: note: %s\n", e.Message)
	}
}

func (r *runner) showPhase(p api.Phase) {
	fmt.Fprintf(r.app.err, "grange: %-8s %9.1f ms\n", p.Name, p.Milliseconds)
}

// report tells how it ended.
func (r *runner) report(o outcome, clean []api.Phase, took time.Duration) {
	total := api.Phase{Name: "total", Milliseconds: float64(took.Microseconds()) / 1000}
	if r.app.json {
		message, hint, code := "", "", ""
		if o.err != nil {
			message, hint = explain(o.err)
			code = codeOf(o.err)
		}
		newJSON(r.app.err).Encode(map[string]any{"event": "result", "status": o.status, "exit": o.exit,
			"error": message, "hint": hint, "code": code, "phases": append(clean, total)})
		return
	}
	if r.verbose {
		for _, p := range append(clean, total) {
			r.showPhase(p)
		}
	}
	if o.err != nil {
		printError(r.app.err, o.err)
	}
}

// awaitEnd gives the agent a moment to tell of an end that the guest told us of: given back before, the VM goes, and
// the job's phase is never told.
func (r *runner) awaitEnd(o outcome) {
	if o.exit == nil {
		return
	}
	select {
	case <-r.told:
	case <-time.After(200 * time.Millisecond): // the agent may be away
	}
}
