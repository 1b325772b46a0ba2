package cloud

import (
	"cmp"
	"errors"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/disk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/journal"
	"github.com/grange-project/grange/internal/ledger"
	"github.com/grange-project/grange/internal/procstat"
	"github.com/grange-project/grange/internal/wire"
)

// VM is one cloud VM on this host. It has a life of its own: nobody's connection keeps it, and its claim
// and its disks stay while it is stopped, until the server wants it deleted. One goroutine, run, brings it to what is
// wanted, one step at a time, and looks again after each; every step may be cut short by a kill of the agent and done
// again by the next one.
//
// What becomes of a VM that ends although it is wanted on:
//
//   - Its guest powered off: it is stopped, and stays so until the server wants it restarted (farm.Wanted.Boots), or
//     off and on again.
//   - It crashed, was killed, or nobody saw why it ended: it is started again, after a pause that doubles with each
//     such end. The count starts anew when it has run for a while. After maxFailures of them it is failed, and stays so
//     until the server says something new.
//   - The host booted: it is started again.
//
// A VM that is refused before it ever ran here (no room, no image) is failed, and never tried again until the server
// says something new of it: the server may have placed it elsewhere by then.
type VM struct {
	host  *Host
	ID    string
	Name  string        // of its domain and its directories
	wake  chan struct{} // room for one: something may be to be done
	begun bool          // run has; keep alone looks

	mu       sync.Mutex
	wanted   fleet.WantedVM   // the newest; record.Wanted may still be an older one
	unlisted bool             // there is a list, and it lacks the VM
	record   record           // as the file has it; run alone changes it
	machine  *machine.Machine // nil: none runs
	state    farm.VMState
	reason   string // of a state that is not what is wanted
	since    time.Time
	ready    bool          // its guest has said that it is up
	end      hyper.End     // how a machine of it ended last, as far as anybody told
	told     bool          // end is newer than the machine's start
	note     string        // what is wrong with a machine that runs
	silence  *farm.Error   // its guest is unresponsive; nil: it is not
	full     bool          // it stands still until the host has disk space again
	used     time.Duration // by this machine, when that was last looked at

	guest     guestState
	ending    ending
	departure departure
	arrival   arrival

	// These are run's alone.
	started time.Time // its machine; by the monotonic clock
	until   time.Time // nothing is started before; by the monotonic clock
	pauses  int       // waits for something outside of the VM, in a row
}

const (
	maxFailures  = 5
	calmAfter    = 10 * time.Minute // a VM that has run so long has started well
	firstPause   = time.Second      // after a failure; each in a row doubles it
	awayPause    = time.Second      // between looks for a hypervisor that is away, or for a minimum of the host
	maxAwayPause = 30 * time.Second
	forever      = time.Duration(-1)
)

func newVM(h *Host, id string) *VM {
	v := &VM{host: h, ID: id, Name: Name(id), wake: make(chan struct{}, 1), state: farm.VMStarting, since: time.Now()}
	v.guest.VM, v.ending.VM, v.departure.VM, v.arrival.VM = v, v, v, v
	v.arrival.controls = make(chan *moveConn)
	return v
}

func (v *VM) poke() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// want takes what the server wants now; nil: it is not in the list. It reports whether it was there, or not, until now.
func (v *VM) want(w *fleet.WantedVM) (moved bool) {
	v.mu.Lock()
	moved = v.unlisted != (w == nil)
	v.unlisted = w == nil
	if w != nil {
		v.wanted = *w
	}
	v.mu.Unlock()
	v.poke()
	return moved
}

func (v *VM) recordNow() record {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.record
}

func (v *VM) newest() (w fleet.WantedVM, unlisted bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.wanted, v.unlisted
}

func (v *VM) Current() *machine.Machine {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.machine
}

// update changes what others see of the VM, and tells them.
func (v *VM) update(change func()) {
	v.mu.Lock()
	change()
	v.mu.Unlock()
	v.host.publish()
}

// is sets the VM's state.
func (v *VM) is(state farm.VMState, reason string) {
	v.mu.Lock()
	same := v.state == state && v.reason == reason
	if v.state != state {
		v.since = time.Now()
	}
	v.state, v.reason = state, reason
	v.mu.Unlock()
	if !same {
		v.host.publish()
	}
}

// keep writes the changed record, and takes it over.
func (v *VM) keep(change func(r *record)) error {
	r := v.recordNow()
	change(&r)
	err := disk.NoSpace(v.host.writeRecord(r))
	if farm.IsCode(err, farm.CodeDiskFull) {
		return err
	} else if err != nil {
		return &farm.Error{Kind: farm.Internal, Code: farm.CodeDiskTool,
			Message: "the record of VM " + v.Name + " cannot be written",
			Hint:    "see state_dir in the agent's configuration", Err: err}
	}
	v.update(func() { v.record = r })
	return nil
}

// run has the VM as it is wanted until the agent stops, or until there is nothing of it and nobody asks for it.
func (v *VM) run() {
	for {
		if v.host.ctx.Err() != nil { // looked at first: a wake-up at the same moment must not begin anything
			if m := v.Current(); m != nil {
				m.Unwatch() // the VM goes on
			}
			return
		}
		pause, over := v.step()
		if over {
			return
		}
		var after <-chan time.Time
		if pause >= 0 {
			after = time.After(pause)
		}
		select {
		case <-v.wake:
		case <-after:
		case <-v.host.ctx.Done():
		}
	}
}

// step does what is to be done next, and says when to look again.
func (v *VM) step() (pause time.Duration, over bool) {
	if v.host.forget(v) {
		return 0, true
	}
	if w, _ := v.newest(); v.gone() {
		if farm.Power(w.Power) == farm.PowerDeleted {
			return forever, false
		}
		v.update(func() { v.record = record{} }) // wanted here again
		v.is(farm.VMStarting, "")
	}
	if err := v.takeWanted(); err != nil {
		return v.stumble(stepNone, err), false
	}
	silent := false
	if m := v.Current(); m != nil && m.Control.HasGone() {
		if silent = v.ending.lives(m); !silent {
			v.ending.ended(m)
		}
	}
	if m := v.Current(); m != nil && v.guest.isOverdue() {
		if err := v.guest.endSilent(m); err != nil {
			return v.stumble(stepStop, err), false
		}
	}
	r := v.recordNow()
	next := r.next(v.Current() != nil)
	if _, unlisted := v.newest(); unlisted && r.Plan.VCPUs == nil {
		next = stepDelete // it was refused, and nobody asks for it any more
	}
	var err error
	switch next {
	case stepDelete:
		v.is(farm.VMDeleting, "")
		err = v.remove()
	case stepStop:
		err = v.ending.stop()
	case stepYield:
		err = v.yield()
	case stepSend:
		err = v.departure.send()
	case stepUnmove:
		err = v.departure.unmove(badMove(nil, "the host's agent was restarted in the middle of it",
			"order the move again"))
	case stepLeave:
		err = v.departure.leaveGone()
	case stepReceive:
		err = v.arrival.receive()
	case stepBuild, stepStart:
		if wait := time.Until(v.until); wait > 0 {
			return wait, false
		}
		if next == stepBuild {
			err = v.build()
		} else {
			err = v.start()
		}
	default:
		v.rest(r)
		if silent { // nobody will tell when it ends
			v.pauses++
			return min(awayPause<<min(v.pauses, 10)/4, maxAwayPause), false
		}
		return forever, false
	}
	if err != nil {
		return v.stumble(next, err), false
	}
	v.pauses = 0
	return 0, false
}

// over reports whether nothing of the VM is here, and nobody asks for it: it was deleted and the list lacks it, or it
// never came to have anything.
func (v *VM) over() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.state == farm.VMGone && v.unlisted
}

// step is one thing to do.
type step string

const (
	stepNone   step = ""
	stepDelete step = "delete"
	stepStop   step = "stop"
	stepBuild  step = "build" // claim its room, and settle what its disks are
	stepStart  step = "start"
	stepYield  step = "yield" // give its claim back, and keep its disks

	stepSend    step = "send"    // move it to another host
	stepUnmove  step = "unmove"  // have it run on after a move that came to nothing
	stepLeave   step = "leave"   // end what is left of it here: it runs elsewhere
	stepReceive step = "receive" // have it from another host
)

// next is what is to be done, from what is wanted and what was done. It is pure.
func (r record) next(running bool) step {
	w := r.Wanted
	move, moves := r.nextMove(running)
	build := r.Plan.VCPUs == nil && r.Halt == haltNone || r.Plan.VCPUs != nil && r.Builds < w.Builds &&
		(r.Refused == nil || *r.Refused < w.Builds)
	// its CPUs are nobody's claim any more, or another job has others
	elsewhere := r.Yielded || w.Job != "" && w.Job != r.Job
	moved := r.Plan.VCPUs != nil && elsewhere && farm.Power(w.Power) == farm.PowerOn && r.Halt == haltNone
	switch {
	case farm.Power(w.Power) == farm.PowerDeleted:
		return stepDelete
	case moves:
		return move
	case build && running && !r.fresh():
		return stepBuild // looks whether there is room before it stops anything
	case running && (build || farm.Power(w.Power) == farm.PowerOff || r.Boots < w.Boots):
		return stepStop
	case running:
		return stepNone
	case build, moved:
		return stepBuild
	case r.Job != "" && w.Job == "":
		return stepYield
	case farm.Power(w.Power) == farm.PowerOn && r.Halt == haltNone && r.Plan.VCPUs != nil:
		return stepStart
	}
	return stepNone
}

// fresh reports whether the next build is to have new disks.
func (r record) fresh() bool { return r.Wanted.Fresh > r.Fresh || r.Digest == "" }

// news reports whether the server says something of a VM that ends its halt.
func (r record) news(w fleet.WantedVM) bool {
	old := r.Wanted
	again := w.Power != old.Power || w.Boots > old.Boots || w.Builds > old.Builds || w.Fresh > old.Fresh
	return again || r.Halt == haltFailed && (w.Image != old.Image || !reflect.DeepEqual(w.Plan, old.Plan))
}

// takeWanted has the record say what is wanted before anything is done for it. A deletion, or an order to stop, is
// carried out although the record cannot be written: a full disk must not keep people from freeing it.
func (v *VM) takeWanted() error {
	w, _ := v.newest()
	r := v.recordNow()
	if w.ID == "" || reflect.DeepEqual(r.Wanted, w) {
		return nil
	}
	change := func(r *record) {
		if r.Version == 0 {
			r.Version, r.Created = recordVersion, time.Now()
		}
		if r.news(w) {
			r.Halt, r.Reason, r.Failures = haltNone, "", 0
		}
		if !reflect.DeepEqual(r.Wanted.Plan, w.Plan) {
			r.Refused = nil
		}
		r.Wanted = w
	}
	// it never was here: nothing to write, much to look for
	if r.Version == 0 && farm.Power(w.Power) == farm.PowerDeleted {
		change(&r)
		v.update(func() { v.record = r })
		return nil
	}
	if r.news(w) {
		v.until = time.Time{}
	}
	err := v.keep(change)
	if err == nil && !reflect.DeepEqual(r.Wanted.Firewall, w.Firewall) {
		v.refence()
	}
	if r.Plan.VCPUs != nil && !r.Yielded {
		v.host.ledger.SetBatchJob(v.ID, w.Job) // a job that was reserved anew has the same place
	}
	if err != nil && r.Version != 0 && farm.Power(w.Power) != farm.PowerOn {
		v.log().Error("record of a vm", "error", err)
		change(&r)
		v.update(func() { v.record = r })
		return nil
	}
	return err
}

// rest reports how the VM is when there is nothing to do.
func (v *VM) rest(r record) {
	switch {
	case r.gone():
		v.is(farm.VMStopped, reasonMoved(r.Out.Name))
	case r.In != nil:
		v.is(farm.VMFailed, r.In.Reason)
	case v.Current() != nil:
		v.mu.Lock()
		note := v.note
		if v.silence != nil {
			note = reasonOf(v.silence)
		}
		m, full := v.machine, v.full
		v.mu.Unlock()
		if full && m != nil {
			note = reasonOf(v.host.Machines.DiskFull(m, "the VM is paused until there is space"))
		}
		v.is(farm.VMRunning, cmp.Or(note, r.Reason))
	case r.Halt == haltFailed:
		v.is(farm.VMFailed, r.Reason)
	case r.Halt == haltOff:
		v.is(farm.VMStopped, r.Reason)
	default:
		v.is(farm.VMStopped, "")
	}
}

func (v *VM) gone() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.state == farm.VMGone
}

// stumble notes that a step came to nothing, and says when to try again. What the VM cannot help is waited for without
// end, and counts as nothing: a hypervisor that is away, a host below its minimum or drained, a back-off. Every other
// failure counts, and is tried again a few times.
func (v *VM) stumble(step step, err error) time.Duration {
	if v.host.ctx.Err() != nil {
		return forever
	}
	r := v.recordNow()
	state := farm.VMStarting
	final := !r.Ran && (!machine.WorthAnotherTry(err) || farm.IsKind(err, farm.NotFound) ||
		farm.IsCode(err, farm.CodeBackedOff))
	switch {
	case v.Current() != nil:
		state = farm.VMRunning
	case farm.Power(r.Wanted.Power) == farm.PowerDeleted:
		state = farm.VMDeleting
	}
	reason := reasonOf(err)
	waits := []farm.Code{hyper.CodeAway, farm.CodeBackedOff, machine.CodeBelowMinimum, ledger.CodeHostDrained,
		machine.CodeNoVMUID}
	waiting := !final && slices.ContainsFunc(waits, func(c farm.Code) bool { return farm.IsCode(err, c) })
	unwritten := r.Wanted.ID == "" // not even its first record could be written: there is nothing to note a failure in
	moves := step == stepSend || step == stepUnmove || step == stepLeave || step == stepReceive
	if step == stepStop || step == stepDelete || moves || waiting || unwritten {
		v.is(state, reason)
		v.pauses++
		return min(awayPause<<min(v.pauses, 10), maxAwayPause)
	}
	v.log().Warn("cloud VM", "failures", r.Failures+1, "error", err)
	if state == farm.VMRunning { // a resize that cannot be: it runs as it did
		builds := r.Wanted.Builds
		return v.kept(func(r *record) { r.Refused, r.Reason = &builds, reason })
	}
	final = final || r.Failures+1 > maxFailures
	v.until = time.Now().Add(firstPause << min(r.Failures, 10))
	if !final {
		v.is(farm.VMStarting, reason)
	}
	if !r.Ran && farm.IsKind(err, farm.NoCapacity) && !farm.IsCode(err, farm.CodeTooBig) {
		// of whatever it is
		reason = reasonOf(&farm.Error{Kind: farm.NoCapacity, Code: farm.CodeNoRoom, Message: err.Error()})
	}
	if final && r.Ran { // whose disks are here, and only here: no code that the server would take for a refusal
		reason = reasonOf(&farm.Error{Kind: farm.Unavailable, Code: CodeVMWontStart,
			Message: "the VM does not start here again", Err: err})
	}
	pause := v.kept(func(r *record) {
		r.Failures++
		if final {
			r.Halt, r.Reason = haltFailed, reason
		}
		if final && !r.Ran {
			r.Plan, r.Digest, r.Disks = farm.Plan{}, "", false
			// answered: nothing tries them any more, and the VM may go elsewhere
			r.Boots, r.Builds = r.Wanted.Boots, r.Wanted.Builds
		}
	})
	if final && !r.Ran {
		v.host.ledger.Release(v.ID) // a refused VM holds nothing
	}
	return pause
}

// kept writes the record, and if that is not possible comes again later.
func (v *VM) kept(change func(*record)) time.Duration {
	if err := v.keep(change); err != nil {
		v.log().Error("record of a vm", "error", err)
		v.is(farm.VMFailed, reasonOf(err))
		return maxAwayPause
	}
	return 0
}

// reasonOf is an error for the server: its code, and what people may read.
func reasonOf(err error) string {
	code := farm.CodeInternal
	if e := new(farm.Error); errors.As(err, &e) {
		code = e.Code
	}
	text := string(code) + ": " + err.Error()
	return strings.ToValidUTF8(text[:min(len(text), machine.MaxReason)], "")
}

// observed is the VM as the server is told.
func (v *VM) observed() fleet.Observed {
	v.mu.Lock()
	defer v.mu.Unlock()
	r := v.record
	if v.machine != nil {
		v.used = max(v.used, cpuTime(v.machine.Applied.PID))
	}
	plan := r.Plan
	if r.Yielded {
		plan = farm.Plan{}
	}
	o := fleet.Observed{ID: v.ID, State: string(v.state), Reason: v.reason, Since: v.since, Boots: r.Boots,
		Builds: r.Builds, Ready: v.ready && v.machine != nil, Plan: wire.PlanOrNil(plan),
		CPUTime: (r.CPUTime + v.used).Seconds(), Digest: r.Digest}
	o.Move = v.moveSide()
	if v.unlisted && r.Wanted.Name != "" {
		o.Name = r.Wanted.Project + "/" + r.Wanted.Name
	}
	return o
}

// cpuTime is what a process and its threads have used, to the hundredth of a second; 0 for one that is not there. See
// proc(5): 14 is the time in user space, 15 that in the kernel.
func cpuTime(pid int) time.Duration {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if pid == 0 || err != nil {
		return 0
	}
	stat := procstat.Parse(text)
	user, _ := strconv.ParseInt(stat.Field(14), 10, 64)
	system, _ := strconv.ParseInt(stat.Field(15), 10, 64)
	return time.Duration(user+system) * (time.Second / 100)
}

// log is for what is about this cloud VM. v.mu is not held.
func (v *VM) log() *slog.Logger {
	log, r := v.host.log.With("vm", v.Name), v.recordNow()
	if r.Wanted.Owner != "" {
		log = log.With("user", r.Wanted.Owner)
	}
	if r.Job != "" {
		log = log.With(journal.JobAttrs(r.Job, "")...)
	}
	return log
}

// Codes of cloud VMs on their host, and of moves.
const (
	CodeVMEnded       farm.Code = "vm-ended"          // a VM ended, and nobody wanted it to
	CodeVMWontStart   farm.Code = "vm-wont-start"     // a VM that has run on its host does not start there any more
	CodeServersVM     farm.Code = "belongs-to-server" // the host's own commands do not change it
	CodeMoveCancelled farm.Code = "move-cancelled"    // a move was not wanted any more
)
