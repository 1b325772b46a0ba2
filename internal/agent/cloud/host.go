package cloud

import (
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/agent/catalogue"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/agent/meter"
	"github.com/grange-project/grange/internal/agent/usage"
	"github.com/grange-project/grange/internal/breaker"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/journal"
	"github.com/grange-project/grange/internal/ledger"
	"github.com/grange-project/grange/internal/vmimage"
)

// Options are what cloud VMs need of the agent of their host.
type Options struct {
	Machines    *machine.Host
	Jobs        *sync.WaitGroup // of all that the agent waits for at its end
	GuestFile   string
	Version     string
	Accelerator func() string
	Peers       Peers            // nil: the host has not joined a fleet
	Images      *catalogue.Fleet // nil: the host knows no catalogue
	// Settings takes over what the server says of the agent's configuration.
	Settings func(fleet.Settings)
	// Drains takes over what the server drains of network file systems, and FileSystems are what the host has mounted;
	// nil: they are left out.
	Drains      func([]api.FileSystemDrain)
	FileSystems func() []farm.HostFileSystem
	// Admit lets a VM start unless something backs off; Started and Failed say what has become of it.
	Admit   func(breaker.Start) (*breaker.Ticket, error)
	Started func(*breaker.Ticket) (healed bool)
	Failed  func(t *breaker.Ticket, blame breaker.Blame, text string) []breaker.Key
	Meter   *meter.Meter // nil: nobody counts
	// Confines reports whether a batch system confines its jobs here, and HasJob whether one of them is here.
	Confines func() bool
	HasJob   func(key string) bool
	// Encode is what a machine carries as the agent's records have it.
	Encode func(Carried) ([]byte, error)
	Usage  *usage.Desk
}

// Host is the cloud VMs of one host. It needs no server: what the server wanted last is on the disk.
//
// Its lock is taken before a VM's, and is not held while anything is done.
type Host struct {
	Options
	hyper  machine.Hypervisor
	ledger *ledger.Ledger
	images *vmimage.Store
	log    *slog.Logger
	config func() config.Agent

	ctx       context.Context // of the agent, from Load on
	instance  string          // of this process
	recovered chan struct{}   // closed when it is known what is on the host
	wake      chan struct{}   // room for one: there are VMs whose run has not begun
	starts    chan struct{}   // as many as start at a time: a host that has booted starts all of its VMs
	moves     moveListener

	noBridges, noImages, noNode journal.Repeated // of the facts
	flows                       flows

	mu      sync.Mutex
	vms     map[string]*VM
	list    *fleet.WantedList // nil: none has come
	changed chan struct{}     // closed and made anew at every change
	begun   bool              // recovered
	linked  bool              // somebody looks
	facts   fleet.Facts
	read    time.Time // the facts were; by the monotonic clock
}

const (
	startsAtOnce = 4
	factsEvery   = 2 * time.Second
)

// New returns a host without VMs.
func New(o Options) *Host {
	h := &Host{Options: o, instance: api.NewID(), recovered: make(chan struct{}), wake: make(chan struct{}, 1),
		starts: make(chan struct{}, startsAtOnce), vms: map[string]*VM{}, changed: make(chan struct{})}
	h.moves.host = h
	if m := o.Machines; m != nil {
		h.hyper, h.ledger, h.images, h.log, h.config = m.Hyper, m.Ledger, m.Images, m.Log, m.Config
	}
	return h
}

// publish notifies whoever follows Observed.
func (h *Host) publish() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.publishLocked()
}

func (h *Host) publishLocked() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// forget takes a VM out of which nothing is left and which nobody asks for. It reports whether that is so.
func (h *Host) forget(v *VM) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !v.over() {
		return false
	}
	delete(h.vms, v.ID)
	h.publishLocked()
	return true
}

// Recovered is closed once the agent knows what is on its host. Before that Observed would leave out VMs that are
// there, so nobody may report it.
func (h *Host) Recovered() <-chan struct{} { return h.recovered }

// Want takes over what the server wants of this host. It is level, not edge, and returns at once; the same list twice
// does nothing. A VM that is here and not in the list is left alone. Once it has returned, Observed has every VM of the
// list, unless the agent has not Recovered yet.
func (h *Host) Want(list fleet.WantedList) {
	h.Settings(list.Settings)
	if h.Drains != nil {
		h.Drains(list.FileSystems)
	}
	h.mu.Lock()
	h.list = &list
	if h.begun {
		h.applyListLocked()
	}
	h.mu.Unlock()
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// Observed is how cloud VMs are: all that are here, and those wanted deleted of which nothing is left. changed
// is closed at the next change of them, or of Facts but for the clock.
func (h *Host) Observed() (vms []fleet.Observed, changed <-chan struct{}) {
	h.mu.Lock()
	h.linked = true
	all, changed := slices.Collect(maps.Values(h.vms)), h.changed
	h.mu.Unlock()
	for _, v := range all {
		vms = append(vms, v.observed())
	}
	slices.SortFunc(vms, func(x, y fleet.Observed) int { return strings.Compare(x.ID, y.ID) })
	return vms, changed
}

// change is closed at the next change of cloud VMs. Whoever looks at that alone is no server.
func (h *Host) change() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changed
}

// All are cloud VMs on this host, in the order of their IDs.
func (h *Host) All() []*VM {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.SortedFunc(maps.Values(h.vms), func(x, y *VM) int { return strings.Compare(x.ID, y.ID) })
}

func (h *Host) ByID(id string) *VM {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.vms[id]
}

// wanted are cloud VMs that are on this host, as they were wanted last.
func (h *Host) wanted() []fleet.WantedVM {
	var all []fleet.WantedVM
	for _, v := range h.All() {
		if w, _ := v.newest(); !v.gone() {
			all = append(all, w)
		}
	}
	return all
}

// machineOf finds the machine of a cloud VM; nil when it does not run here.
func (h *Host) machineOf(id string) (*machine.Machine, fleet.WantedVM) {
	v := h.ByID(id)
	if v == nil {
		return nil, fleet.WantedVM{}
	}
	w, _ := v.newest()
	return v.Current(), w
}

// Ended takes what the hypervisor says of the end of a machine, which may be another's.
func (h *Host) Ended(id string, end hyper.End) {
	v := h.ByID(id)
	if v == nil {
		return
	}
	v.mu.Lock()
	v.end, v.told = end, true
	v.mu.Unlock()
	v.poke()
}

// Begin has the VMs that were found live on, and begins to listen to the server.
func (h *Host) Begin() {
	for _, v := range h.All() {
		v.missEnd()
	}
	h.mu.Lock()
	h.begun = true
	if h.list != nil {
		h.applyListLocked()
	}
	h.mu.Unlock()
	close(h.recovered)
	h.publish()
	h.Jobs.Go(h.keep)
}

// keep begins the lives of VMs, and tells when the host's facts have changed.
func (h *Host) keep() {
	tick := time.NewTicker(factsEvery)
	defer tick.Stop()
	for {
		for _, v := range h.All() {
			if !v.begun {
				v.begun = true
				h.Jobs.Go(v.run)
			}
		}
		select {
		case <-h.wake:
		case <-tick.C:
			h.lookAtFacts()
		case <-h.ctx.Done():
			return
		}
	}
}

// applyListLocked hands each VM what is wanted of it. What makes no sense is passed over: no VM of a list suffers from
// another one.
func (h *Host) applyListLocked() {
	wanted := map[string]*fleet.WantedVM{}
	for i, w := range h.list.VMs {
		if !farm.IsID(w.ID) || !slices.Contains([]farm.Power{farm.PowerOn, farm.PowerOff, farm.PowerDeleted},
			farm.Power(w.Power)) {
			h.log.Error("the server wants what makes no sense", "vm", w.ID, "power", w.Power)
			continue
		}
		wanted[w.ID] = &h.list.VMs[i]
	}
	names := map[string]string{}
	for id := range h.vms {
		names[Name(id)] = id
	}
	for id, w := range wanted {
		v := h.vms[id]
		if other := names[Name(id)]; other != "" && other != id {
			h.log.Error("two cloud VMs have IDs that start alike; the later one is passed over", "vm", id,
				"other", other)
			continue
		}
		names[Name(id)] = id
		if v == nil {
			v = newVM(h, id)
			h.vms[id] = v
		}
		v.want(w)
	}
	for id, v := range h.vms {
		if wanted[id] == nil && v.want(nil) {
			h.publishLocked() // with its name: the server may not know it
		}
	}
}

// lookAtFacts reads the facts anew when somebody looks, and tells if they have changed.
func (h *Host) lookAtFacts() {
	h.mu.Lock()
	linked, old := h.linked, h.facts
	h.mu.Unlock()
	if !linked {
		return
	}
	facts := h.ReadFacts()
	h.mu.Lock()
	h.facts, h.read = facts, time.Now()
	h.mu.Unlock()
	if !reflect.DeepEqual(old, facts) {
		h.publish()
	}
}

// Facts are what this host says of itself. They are read every few seconds, not at each call. The error is ctx's, while
// the agent does not know its host yet.
func (h *Host) Facts(ctx context.Context) (fleet.Facts, error) {
	select {
	case <-h.recovered:
	case <-ctx.Done():
		return fleet.Facts{}, context.Cause(ctx)
	}
	h.mu.Lock()
	facts, fresh := h.facts, !h.read.IsZero() && time.Since(h.read) < 2*factsEvery
	h.mu.Unlock()
	if !fresh {
		facts = h.ReadFacts()
		h.mu.Lock()
		h.facts, h.read = facts, time.Now()
		h.mu.Unlock()
	}
	facts.Now = time.Now()
	return facts, nil
}
