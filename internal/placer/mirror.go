package placer

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/placement"
	"github.com/grange-project/grange/internal/store"
)

// Mirror is what placement knows of the fleet: read from the store once, and kept by its change feed. On the server
// that leads it runs ahead of the store by what the placer has claimed and not yet committed. Its methods may be called
// from several goroutines.
type Mirror struct {
	options Options

	asking sync.Mutex // for an explanation
	rested time.Time  // the next one may be asked for then

	mu        lock
	leading   bool // the placer keeps it; others leave it alone
	fleet     *placement.Fleet
	cells     []farm.Cell
	networks  []farm.FleetNetwork
	groups    map[string]farm.Affinity // by "project/name"
	hosts     map[string]hostNote      // by ID
	present   map[string]presence      // by VM: those that their host has
	revision  int64                    // up to which it has read; 0: nothing yet
	checked   time.Time                // when hosts were last looked at for silence
	checkedTo string                   // the host behind which that goes on; "": all were looked at
	own       map[int64]bool           // revisions that the placer wrote, and that it need not read

	pending pending

	claims sync.Mutex
	held   map[string]placement.Placed // by VM: claimed for transactions that are not over
}

// presence is a VM that its host says it has.
type presence struct {
	host    string
	scratch farm.Bytes
}

// pending is what the mirror has read and the placer has to look at.
type pending struct {
	unplaced []*farm.VM
	resized  []farm.VM       // that are to have another size
	rejected []farm.VM       // that their hosts would not have
	healthy  []string        // hosts that run a VM
	settled  []string        // VMs that wait for nothing: they have a host, or need none
	running  []string        // of them, those that run
	gone     []string        // VMs whose rows are gone
	freed    map[string]bool // cells in which there may be room that was not there before
	all      bool            // that may be so anywhere
}

func newPending(all bool) pending { return pending{freed: map[string]bool{}, all: all} }

// NewMirror returns a mirror that has read nothing yet.
func NewMirror(o Options) *Mirror {
	return &Mirror{options: o, mu: newLock(), held: map[string]placement.Placed{}}
}

func missing(err error) bool { return farm.IsKind(err, farm.NotFound) }

// refresh is follow, and a look for silent hosts when that is due. The mirror is locked.
func (m *Mirror) refresh(ctx context.Context) error {
	if err := m.follow(ctx); err != nil || m.options.Now().Before(m.checkDue()) {
		return err
	}
	m.checked = m.options.Now()
	return m.options.Store.View(ctx, m.checkSilent)
}

// changesAtOnce is how many changes are read in one go.
const changesAtOnce = 5000

// follow reads what changed in the store since the last time; at first, everything. The mirror is locked.
func (m *Mirror) follow(ctx context.Context) error {
	if m.followRecent() {
		return nil
	}
	for m.revision != 0 {
		before, latest := m.revision, int64(0)
		err := m.options.Store.View(ctx, func(t *store.Tx) error {
			latest = t.Revision()
			changes, upTo, err := t.Changes(before, changesAtOnce)
			if err != nil || upTo == before {
				return err
			}
			kinds, changed := m.lastChanges(changes)
			m.readUpTo(upTo)
			return m.read(t, kinds, changed)
		})
		if err != nil && !gone(err) {
			m.revision = 0 // some of it may have been applied
			return err
		}
		if err != nil {
			break
		}
		if m.revision >= latest {
			return nil
		}
	}
	return m.load(ctx)
}

// followRecent follows where that takes no question to the database: new VMs that came by this server, VMs that are
// gone, and what the placer wrote. ok is false when there is anything else, and nothing was done.
func (m *Mirror) followRecent() (ok bool) {
	changes, upTo, ok := m.options.Store.Recent(m.revision, changesAtOnce)
	if !ok || m.revision == 0 {
		return false
	}
	kinds, changed := m.lastChanges(changes)
	if len(kinds) > 0 {
		return false
	}
	vms := make([]*farm.VM, len(changed))
	for i, c := range changed {
		if vms[i] = m.options.Store.Inserted(c); c.Kind != store.KindVM || vms[i] == nil && !c.Deleted {
			return false
		}
	}
	m.readUpTo(upTo)
	for i, c := range changed {
		if c.Deleted {
			m.dropVM(c.ID)
		} else {
			m.setVM(vms[i])
		}
	}
	return true
}

// readUpTo notes up to where the feed was read.
func (m *Mirror) readUpTo(revision int64) {
	m.revision = revision
	for own := range m.own {
		if own <= revision {
			delete(m.own, own)
		}
	}
}

func gone(err error) bool { return farm.IsCode(err, farm.CodeFeedGone) }

// load reads everything anew.
func (m *Mirror) load(ctx context.Context) error {
	held := m.holds() // before the snapshot: whoever settles meanwhile is in one of the two
	return m.options.Store.View(ctx, func(t *store.Tx) error {
		m.clear()
		for _, read := range []func(*store.Tx) error{m.readCells, m.readNetworks, m.readGroups} {
			if err := read(t); err != nil {
				return err
			}
		}
		if err := t.EachVM(store.VMFilter{}, func(vm farm.VM) { m.setVM(&vm) }); err != nil {
			return err
		}
		slices.SortStableFunc(m.pending.unplaced,
			func(a, b *farm.VM) int { return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name)) })
		for id, placed := range held {
			if _, there := m.fleet.Place(id); !there {
				m.fleet.Restore(placed)
			}
		}
		if err := t.EachHost("", m.setHost); err != nil {
			return err
		}
		m.revision = t.Revision()
		return nil
	})
}

// clear forgets everything.
func (m *Mirror) clear() {
	m.revision, m.cells, m.networks = 0, nil, nil
	m.fleet, m.groups, m.hosts, m.present =
		placement.NewFleet(), map[string]farm.Affinity{}, map[string]hostNote{}, map[string]presence{}
	m.own, m.pending = map[int64]bool{}, newPending(true)
}

func (m *Mirror) readGroups(t *store.Tx) error {
	groups, err := t.Groups("")
	clear(m.groups)
	for _, g := range groups {
		m.groups[g.Project+"/"+g.Name] = g.Affinity
	}
	return err
}

// lastChanges returns the last change of each host and VM, and which other kinds changed, beside what the placer wrote
// itself.
func (m *Mirror) lastChanges(changes []store.Change) (kinds map[store.Kind]bool, ids []store.Change) {
	kinds = map[store.Kind]bool{}
	at := map[store.Change]int{}
	for _, c := range changes {
		if m.own[c.Revision] {
			continue
		}
		key := store.Change{Kind: c.Kind, ID: c.ID}
		i, again := at[key]
		switch c.Kind {
		case store.KindHost, store.KindVM:
			switch {
			case !again:
				at[key] = len(ids)
				ids = append(ids, c)
			case !ids[i].Deleted: // IDs do not come again
				ids[i] = c
			}
		default:
			kinds[c.Kind] = true
		}
	}
	return kinds, ids
}

// read reads what changed as it is now; that may be newer than the change. Cells, networks and groups are few: any
// change of one has all of its kind read. Hosts are many, and what follows for them is not read.
func (m *Mirror) read(t *store.Tx, kinds map[store.Kind]bool, changed []store.Change) error {
	for kind, read := range map[store.Kind]func(*store.Tx) error{store.KindCell: m.readCells,
		store.KindNetwork: m.readNetworks, store.KindGroup: m.readGroups} {
		if kinds[kind] {
			if err := read(t); err != nil {
				return err
			}
			m.pending.all = true
		}
	}
	for _, c := range changed {
		if err := m.readOne(t, c); err != nil {
			return err
		}
	}
	return nil
}

func (m *Mirror) readOne(t *store.Tx, c store.Change) error {
	if c.Kind == store.KindHost {
		h, err := t.Host(c.ID)
		switch {
		case missing(err):
			m.fleet.Remove(c.ID)
			delete(m.hosts, c.ID)
			return nil
		case err != nil:
			return err
		}
		m.setHost(h)
		return nil
	}
	if c.Deleted {
		m.dropVM(c.ID)
		return nil
	}
	vm, err := t.ChangedVM(c)
	switch {
	case missing(err):
		m.dropVM(c.ID)
		return nil
	case err != nil:
		return err
	}
	m.setVM(vm)
	return nil
}

// setVM enters a VM as the store has it.
func (m *Mirror) setVM(vm *farm.VM) {
	if vm.Host == "" {
		m.release(vm.ID)
		delete(m.present, vm.ID)
		if vm.Wanted.Power == farm.PowerDeleted || vm.Reservation != "" {
			m.pending.settled = append(m.pending.settled, vm.ID)
		} else {
			m.pending.unplaced = append(m.pending.unplaced, vm)
		}
		return
	}
	m.pending.settled = append(m.pending.settled, vm.ID)
	now := placement.PlacedOf(*vm)
	if p, ok := m.fleet.Place(vm.ID); !ok || p.Host != now.Host || p.Cell != now.Cell || p.Size != now.Size ||
		p.Bandwidth != now.Bandwidth {
		m.release(vm.ID)
		m.fleet.Restore(now)
	}
	m.setPresence(*vm)
	if vm.Resize != nil {
		m.pending.resized = append(m.pending.resized, *vm)
	}
	if rejected(*vm) {
		m.pending.rejected = append(m.pending.rejected, *vm)
	}
	if vm.Observed.State == farm.VMRunning {
		m.pending.running, m.pending.healthy = append(m.pending.running, vm.ID), append(m.pending.healthy, vm.Host)
	}
}

func (m *Mirror) setPresence(vm farm.VM) {
	switch vm.Observed.State {
	case "", farm.VMFailed, farm.VMGone, farm.VMLost:
		delete(m.present, vm.ID)
	default:
		m.present[vm.ID] = presence{vm.Host, vm.Shape.DiskSpace()}
	}
}

// dropVM forgets a VM whose row is gone.
func (m *Mirror) dropVM(id string) {
	m.release(id)
	delete(m.present, id)
	m.pending.gone = append(m.pending.gone, id)
}

func (m *Mirror) release(id string) {
	if p, ok := m.fleet.Release(id); ok {
		m.freed(p.Host)
	}
}

// freed notes that a host may take what it did not take before. A VM's own cell may be another, for its limits.
func (m *Mirror) freed(host string) {
	m.pending.freed[m.hosts[host].cell] = true
}

// request returns what placement is asked for a VM, in cells that are placed by grange.
func (m *Mirror) request(vm farm.VM, cells []string) placement.Request {
	return placement.RequestOf(vm, cells, m.groups)
}

// broker returns the broker of a cell; "" when there is no such cell.
func (m *Mirror) broker(cell string) string {
	if c, ok := cellNamed(m.cells, cell); ok {
		return cmp.Or(c.Broker, farm.BrokerGrange)
	}
	return ""
}
