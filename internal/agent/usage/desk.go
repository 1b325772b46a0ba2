package usage

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/journal"
	"github.com/grange-project/grange/internal/tuning"
)

// Options are what a desk needs of its host.
type Options struct {
	Dir string // of the records; it is made
	Log *slog.Logger
	// Traffic counts the bytes that went to and from the VM of a QEMU process; ok is false where nobody counts.
	Traffic func(pid int) (in, out uint64, ok bool)
	// Hardware is the kind of this host, and Boot its kernel's boot ID.
	Hardware func() string
	Boot     func() string
	// Tuning is what the tuning audit says of this host; nil: nobody asks it.
	Tuning func(ctx context.Context) (tuning.HostState, error)
	// Keep is how long records that have ended are kept; those that a server is to have, until it has them.
	Keep     func() time.Duration
	Comments *Comments // nil: no batch system takes any
}

// Desk keeps the records of all VMs of a host. VMs are named by keys: of a job's VM the ID of the job that it was made
// for, of a cloud VM its own.
type Desk struct {
	Options
	records *records
	server  atomic.Bool // somebody has asked for what a server does not have
	left    []entry     // of VMs of which it is not known yet whether they run

	mu      sync.Mutex
	vms     map[string]*vm
	unkept  map[string]api.Usage // ended, and not on the disk yet, by ID
	readers map[uint32]bool      // users who are answered now
	tuning  tuning.HostState
	audited bool

	troubles, comments journal.Repeated
}

// entry is a record on the disk, with what the next agent must know to go on measuring.
type entry struct {
	Key     string
	Usage   api.Usage
	PID     int
	Started uint64        // of the process, in clock ticks since boot
	Boot    string        // ID of the boot that the next two are of
	Began   time.Duration // since boot
	Seen    time.Duration // since boot: the last look
	CPU     time.Duration // of earlier processes of this VM, less what earlier records have of this one
	In, Out int64         // bytes of this tap that are earlier records', less those of earlier taps
	Exits   []string      `json:",omitempty"` // jobs whose exits are in the record: a guest tells each agent again
}

// vm is the record of a VM that runs.
type vm struct {
	mu    sync.Mutex
	entry entry
	meter *meter
	over  bool
}

// Open reads the records of a host.
func Open(o Options) (*Desk, error) {
	r, left, err := openRecords(o.Dir, o.Log)
	if err != nil {
		return nil, err
	}
	return &Desk{Options: o, records: r, left: left, vms: map[string]*vm{}, unkept: map[string]api.Usage{},
		readers: map[uint32]bool{}}, nil
}

// Close is called when nothing uses the desk any more.
func (d *Desk) Close() error {
	for _, v := range d.all() {
		v.mu.Lock()
		v.meter.close()
		v.mu.Unlock()
	}
	return d.records.close()
}

// Begin opens the record of a VM whose process is there and has not run yet. A VM that was begun before, and came to
// nothing, goes on with the same record.
func (d *Desk) Begin(key string, u api.Usage, pid int, started uint64) {
	if v := d.of(key); v != nil {
		if !v.is(pid, started) {
			v.again(pid, started)
		}
		d.Look(key)
		return
	}
	d.open(key, u, pid, started, time.Now(), sinceBoot())
}

// open makes a record and writes it.
func (d *Desk) open(key string, u api.Usage, pid int, started uint64, at time.Time, boot time.Duration) {
	u.ID, u.Start, u.Hardware, u.Boot = api.NewID(), at, d.Hardware(), d.Boot()
	d.mu.Lock()
	u.Tuning, u.Findings = d.tuning.Digest, d.tuning.Places()
	v := &vm{meter: newMeter(pid, started), entry: entry{Key: key, Usage: u, PID: pid, Started: started, Boot: u.Boot,
		Began: boot, Seen: boot}}
	d.vms[key] = v
	d.mu.Unlock()
	d.Look(key) // which follows its threads, and writes it down
}

// is reports whether it is a process already.
func (v *vm) is(pid int, started uint64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.entry.PID == pid && v.entry.Started == started
}

// again goes on with another process.
func (v *vm) again(pid int, started uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.entry.CPU += v.meter.used()
	v.meter.close()
	if in, out := v.entry.Usage.NetworkIn, v.entry.Usage.NetworkOut; in != nil {
		v.entry.In, v.entry.Out = -int64(*in), -int64(*out)
	}
	v.meter = newMeter(pid, started)
	v.entry.PID, v.entry.Started = pid, started
}

// GoOn takes over the record of a VM that an earlier agent has begun, and that runs. Where there is none, as of a VM
// that an older release has started or whose record could not be written, one begins with what the process has used.
func (d *Desk) GoOn(key string, u api.Usage, since time.Time, pid int, started uint64) {
	if e, ok := d.take(key, pid, started, u.Kind); ok {
		v := &vm{meter: newMeter(e.PID, e.Started), entry: e}
		if e.PID != pid || e.Started != started {
			v.entry.CPU = cpuOf(e.Usage)
			v.again(pid, started)
		}
		d.mu.Lock()
		d.vms[key] = v
		d.mu.Unlock()
		d.look(v)
		return
	}
	now := time.Now()
	age := max(now.Sub(since), 0) // by a clock that may have been set: nobody knows better
	d.open(key, u, pid, started, since, sinceBoot()-age)
}

// take finds the record of a VM among those that an earlier agent has left: the latest of its process. A job's VM may
// have another process by now: the agent died when it had just made another attempt.
func (d *Desk) take(key string, pid int, started uint64, kind string) (entry, bool) {
	at := -1
	for i, e := range d.left {
		same := e.PID == pid && e.Started == started || kind != api.UsageVM
		if e.Key == key && same && e.Boot == d.Boot() && (at < 0 || e.Usage.Part > d.left[at].Usage.Part) {
			at = i
		}
	}
	if at < 0 {
		return entry{}, false
	}
	e := d.left[at]
	if e.Usage.Ended == api.EndedCut { // it was about to be
		e.Usage.Ended = ""
	}
	d.left = slices.Delete(d.left, at, at+1)
	return e, true
}

// Forget drops the record of a VM that an earlier agent has left and that never ran.
func (d *Desk) Forget(key string) {
	d.left = slices.DeleteFunc(d.left, func(e entry) bool {
		if e.Key != key {
			return false
		}
		d.troubles.Log(d.Log, "the record of a VM that never ran stays", d.records.forget(e.Usage.ID))
		return true
	})
}

// Settle ends the records of VMs that ended while no agent was there. It is called when all that runs is known.
func (d *Desk) Settle() {
	for _, e := range d.left {
		u := e.Usage
		if u.Ended != api.EndedCut { // its next interval is there
			switch {
			case u.Ended != "": // what its job said
			case e.Boot != d.Boot():
				u.Ended = api.EndedHostBooted
			default:
				u.Ended = api.EndedUnseen
			}
			u.Wall = (e.Seen - e.Began).Seconds()
			u.End = u.Start.Add(e.Seen - e.Began)
		}
		d.write(u)
	}
	d.left = nil
}

// Tell changes what is said of a VM that runs: who uses it, how its job ended. change is called under a lock.
func (d *Desk) Tell(key string, change func(u *api.Usage)) {
	if v := d.of(key); v != nil {
		v.mu.Lock()
		change(&v.entry.Usage)
		v.mu.Unlock()
		d.Look(key)
	}
}

// Started notes what a VM's start took so far. It is on the disk with the next look: no start waits for that.
func (d *Desk) Started(key string, phases []api.StartPhase) {
	if v := d.of(key); v != nil {
		v.mu.Lock()
		v.entry.Usage.Phases = phases
		v.mu.Unlock()
	}
}

// Exited notes in the record of a VM how one of its jobs ended.
func (d *Desk) Exited(key, job string, e api.Exit) {
	v := d.of(key)
	if v == nil {
		return
	}
	v.mu.Lock()
	if !slices.Contains(v.entry.Exits, job) {
		v.entry.Exits = append(v.entry.Exits, job)
		exited(&v.entry.Usage, e)
	}
	v.mu.Unlock()
	d.Look(key)
}

// Look measures a VM whose process is about to go, or has just gone, and writes that down: of one that has gone the
// kernel tells less and less, and the agent may not live to end the record.
func (d *Desk) Look(key string) {
	if v := d.of(key); v != nil {
		d.look(v)
		d.keep(v)
	}
}

// End closes the record of a VM whose process has gone. how counts unless the record says how already. A VM without a
// record, as one that never came to run, is no error.
func (d *Desk) End(key, how string) {
	v := d.of(key)
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over {
		return
	}
	v.over = true
	d.measure(v)
	v.meter.close()
	u := v.entry.Usage
	u.End, u.Wall = time.Now(), (sinceBoot() - v.entry.Began).Seconds()
	if u.Ended == "" {
		u.Ended = how
	}
	d.mu.Lock()
	delete(d.vms, key)
	d.mu.Unlock()
	d.write(u)
}

// cpuOf returns the CPU time of a record so far.
func cpuOf(u api.Usage) time.Duration {
	if u.CPU == nil {
		return 0
	}
	return time.Duration(*u.CPU * float64(time.Second))
}

// measure brings a record up to date. The vm is locked.
func (d *Desk) measure(v *vm) {
	e := &v.entry
	e.Usage.CPU = new((e.CPU + v.meter.used()).Seconds())
	if !v.meter.alive() {
		return
	}
	e.Seen = sinceBoot()
	e.Usage.MemoryPeak = max(e.Usage.MemoryPeak, peakMemory(e.PID))
	if in, out, ok := d.Traffic(e.PID); ok {
		in, out = uint64(max(int64(in)-e.In, 0)), uint64(max(int64(out)-e.Out, 0))
		e.Usage.NetworkIn, e.Usage.NetworkOut = &in, &out
	}
}

func (d *Desk) look(v *vm) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.over {
		d.measure(v)
	}
}

// keep writes the record of a VM that runs. That it cannot is no reason to end the VM.
func (d *Desk) keep(v *vm) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over {
		return
	}
	d.troubles.Log(d.Log, "a record of usage is not written; it is tried again", d.records.keep(v.entry))
}

// maxUnkept bounds what is kept in memory while the disk takes nothing.
const maxUnkept = 10000

// write makes a record that has ended a line. What the disk does not take now it is asked to take again.
func (d *Desk) write(u api.Usage) {
	err := d.records.end(u)
	d.troubles.Log(d.Log, "a record of usage that has ended is not written; it is tried again", err)
	if err == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.unkept) < maxUnkept {
		d.unkept[u.ID] = u
	}
}

func (d *Desk) of(key string) *vm {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.vms[key]
}

func (d *Desk) all() (all []*vm) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, v := range d.vms {
		all = append(all, v)
	}
	return all
}
