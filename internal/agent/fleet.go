package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/agent/machine"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// fleetHost is the agent's part that belongs to cloud VMs. It needs no server: what the server wanted last is on
// the disk.
//
// Its lock is taken before a fleetVM's, and is not held while anything is done.
type fleetHost struct {
	instance  string        // of this process
	recovered chan struct{} // closed when it is known what is on the host
	wake      chan struct{} // room for one: there are VMs whose run has not begun
	starts    chan struct{} // as many as start at a time: a host that has booted starts all of its VMs

	mu      sync.Mutex
	vms     map[string]*fleetVM
	list    *fleet.WantedList // nil: none has come
	changed chan struct{}     // closed and made anew at every change
	begun   bool              // recovered
	linked  bool              // somebody looks
	facts   fleet.Facts
	read    time.Time // the facts were; by the monotonic clock
	wrong   error     // with the link to the server; nil: nothing
}

const (
	startsAtOnce = 4
	factsEvery   = 2 * time.Second
)

func (f *fleetHost) init() {
	f.instance, f.recovered, f.wake, f.starts = api.NewID(), make(chan struct{}), make(chan struct{},
		1), make(chan struct{}, startsAtOnce)
	f.vms, f.changed = map[string]*fleetVM{}, make(chan struct{})
}

// publish tells whoever follows Observed.
func (f *fleetHost) publish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.publishLocked()
}

func (f *fleetHost) publishLocked() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// forget takes a VM out of which nothing is left and which nobody asks for. It reports whether that is so.
func (f *fleetHost) forget(v *fleetVM) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !v.over() {
		return false
	}
	delete(f.vms, v.id)
	f.publishLocked()
	return true
}

// Recovered is closed once the agent knows what is on its host. Before that Observed would leave out VMs that are
// there, so nobody may report it.
func (a *Agent) Recovered() <-chan struct{} { return a.fleet.recovered }

// Want takes over what the server wants of this host. It is level, not edge, and returns at once; the same list twice
// does nothing. A VM that is here and not in the list is left alone. Once it has returned, Observed has every VM of the
// list, unless the agent has not Recovered yet.
func (a *Agent) Want(list fleet.WantedList) {
	a.takeSettings(list.Settings)
	f := &a.fleet
	f.mu.Lock()
	f.list = &list
	if f.begun {
		a.applyListLocked()
	}
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// LinkIs tells the agent what is wrong with its link to the server, for those who ask on the host; nil: nothing.
func (a *Agent) LinkIs(wrong error) {
	a.fleet.mu.Lock()
	defer a.fleet.mu.Unlock()
	a.fleet.wrong = wrong
}

// linkWarning returns what is wrong with the link, and what to try; "": nothing is.
func (a *Agent) linkWarning() string {
	a.fleet.mu.Lock()
	wrong := a.fleet.wrong
	a.fleet.mu.Unlock()
	if wrong == nil {
		return ""
	}
	text := "no link to the server: " + wrong.Error()
	if own, ok := errors.AsType[*farm.Error](wrong); ok {
		text = fmt.Sprintf("%s; %s [%s]", text, own.Hint, own.Code)
	}
	return text
}

// Observed is how cloud VMs are: all that are here, and those wanted deleted of which nothing is left. changed
// is closed at the next change of them, or of Facts but for the clock.
func (a *Agent) Observed() (vms []fleet.Observed, changed <-chan struct{}) {
	f := &a.fleet
	f.mu.Lock()
	f.linked = true
	all, changed := slices.Collect(maps.Values(f.vms)), f.changed
	f.mu.Unlock()
	for _, v := range all {
		vms = append(vms, v.observed())
	}
	slices.SortFunc(vms, func(x, y fleet.Observed) int { return strings.Compare(x.ID, y.ID) })
	return vms, changed
}

// fleetChanged is closed at the next change of cloud VMs. Whoever looks at that alone is no server.
func (a *Agent) fleetChanged() <-chan struct{} {
	a.fleet.mu.Lock()
	defer a.fleet.mu.Unlock()
	return a.fleet.changed
}

// allFleet are cloud VMs on this host, in the order of their IDs.
func (a *Agent) allFleet() []*fleetVM {
	a.fleet.mu.Lock()
	defer a.fleet.mu.Unlock()
	return slices.SortedFunc(maps.Values(a.fleet.vms), func(x, y *fleetVM) int { return strings.Compare(x.id, y.id) })
}

func (a *Agent) fleetByID(id string) *fleetVM {
	a.fleet.mu.Lock()
	defer a.fleet.mu.Unlock()
	return a.fleet.vms[id]
}

// fleetVMs are cloud VMs that are on this host, as they were wanted last.
func (a *Agent) fleetVMs() []fleet.WantedVM {
	var all []fleet.WantedVM
	for _, v := range a.allFleet() {
		if w, _ := v.newest(); !v.gone() {
			all = append(all, w)
		}
	}
	return all
}

// fleetMachine finds the machine of a cloud VM; nil when it does not run here.
func (a *Agent) fleetMachine(id string) (*machine.Machine, fleet.WantedVM) {
	v := a.fleetByID(id)
	if v == nil {
		return nil, fleet.WantedVM{}
	}
	w, _ := v.newest()
	return v.current(), w
}

// beginFleet has the VMs that were found live on, and begins to listen to the server.
func (a *Agent) beginFleet() {
	ends := a.hyper.Events(a.ctx)
	a.jobs.Go(func() {
		for e := range ends {
			switch {
			case e.NoSpace:
				a.jobs.Go(func() { a.noSpace(e.ID) })
			case e.Watchdog:
				a.jobs.Go(func() { a.watchdog(e.ID) })
			case e.Rebooted:
				a.jobs.Go(func() { a.rebooted(e.ID) })
			default:
				if v := a.fleetByID(e.ID); v != nil {
					v.mu.Lock()
					v.end, v.told = e.End, true
					v.mu.Unlock()
					v.poke()
				}
			}
		}
	})
	for _, v := range a.allFleet() {
		v.missEnd()
	}
	f := &a.fleet
	f.mu.Lock()
	f.begun = true
	if f.list != nil {
		a.applyListLocked()
	}
	f.mu.Unlock()
	close(f.recovered)
	f.publish()
	a.jobs.Go(a.keepFleet)
}

// keepFleet begins the lives of VMs, and tells when the host's facts have changed.
func (a *Agent) keepFleet() {
	tick := time.NewTicker(factsEvery)
	defer tick.Stop()
	for {
		for _, v := range a.allFleet() {
			if !v.begun {
				v.begun = true
				a.jobs.Go(v.run)
			}
		}
		select {
		case <-a.fleet.wake:
		case <-tick.C:
			a.lookAtFacts()
		case <-a.ctx.Done():
			return
		}
	}
}

// applyListLocked tells each VM what is wanted of it. What makes no sense is passed over: no VM of a list suffers from
// another one.
func (a *Agent) applyListLocked() {
	f := &a.fleet
	wanted := map[string]*fleet.WantedVM{}
	for i, w := range f.list.VMs {
		if !farm.IsID(w.ID) || !slices.Contains([]farm.Power{farm.PowerOn, farm.PowerOff, farm.PowerDeleted},
			farm.Power(w.Power)) {
			a.log.Error("the server wants what makes no sense", "vm", w.ID, "power", w.Power)
			continue
		}
		wanted[w.ID] = &f.list.VMs[i]
	}
	names := map[string]string{}
	for id := range f.vms {
		names[fleetName(id)] = id
	}
	for id, w := range wanted {
		v := f.vms[id]
		if other := names[fleetName(id)]; other != "" && other != id {
			a.log.Error("two cloud VMs have IDs that start alike; the later one is passed over", "vm", id,
				"other", other)
			continue
		}
		names[fleetName(id)] = id
		if v == nil {
			v = newFleetVM(a, id)
			f.vms[id] = v
		}
		v.want(w)
	}
	for id, v := range f.vms {
		if wanted[id] == nil && v.want(nil) {
			f.publishLocked() // with its name: the server may not know it
		}
	}
}

// lookAtFacts reads the facts anew when somebody looks, and tells if they have changed.
func (a *Agent) lookAtFacts() {
	f := &a.fleet
	f.mu.Lock()
	linked, old := f.linked, f.facts
	f.mu.Unlock()
	if !linked {
		return
	}
	facts := a.readFacts()
	f.mu.Lock()
	f.facts, f.read = facts, time.Now()
	f.mu.Unlock()
	if !reflect.DeepEqual(old, facts) {
		f.publish()
	}
}

// Facts are what this host says of itself. They are read every few seconds, not at each call. The error is ctx's, while
// the agent does not know its host yet.
func (a *Agent) Facts(ctx context.Context) (fleet.Facts, error) {
	f := &a.fleet
	select {
	case <-f.recovered:
	case <-ctx.Done():
		return fleet.Facts{}, context.Cause(ctx)
	}
	f.mu.Lock()
	facts, fresh := f.facts, !f.read.IsZero() && time.Since(f.read) < 2*factsEvery
	f.mu.Unlock()
	if !fresh {
		facts = a.readFacts()
		f.mu.Lock()
		f.facts, f.read = facts, time.Now()
		f.mu.Unlock()
	}
	facts.Now = time.Now()
	return facts, nil
}
