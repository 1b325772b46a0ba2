package hostlink

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"runtime"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/server/hub"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/wire"
)

// SettingHosts is the setting that all hosts are told: fleet.Settings.
const SettingHosts = "hosts"

// Wanted waits until a host's wanted list is another one than it has, by its revision and the instance that asks.
// changed is false when nothing changed for as long as a request may last.
func (s *Links) Wanted(ctx context.Context, who farm.Identity, instance string, after int64) (list fleet.WantedList,
	changed bool, err error) {
	p, err := s.Poll(who, instance, after)
	if err != nil {
		return fleet.WantedList{}, false, err
	}
	defer s.saw(p.link, instance)
	ctx, cancel := context.WithTimeout(ctx, p.Lasts())
	defer cancel()
	for !changed {
		if p.from != 0 {
			if err := p.links.Hub.Wait(ctx, p.link.id, p.from); err != nil {
				return fleet.WantedList{}, false, nonTimeout(err)
			}
		}
		if list, changed, err = p.Look(ctx); err != nil {
			return fleet.WantedList{}, false, nonTimeout(err)
		}
	}
	return list, true, nil
}

// Poll is a host's question for its wanted list, for those who wait for many hosts at once and want no goroutine for
// each. It is not safe for concurrent use.
type Poll struct {
	links       *Links
	link        *link
	instance    string
	after, from int64 // revision that the host has; revision up to which nothing changed, 0: not known
	waiting     hub.Waiter
}

// Poll begins a question. Its error is as that of Wanted.
func (s *Links) Poll(who farm.Identity, instance string, after int64) (*Poll, error) {
	l := s.link(who.Host)
	from, err := s.polls(l, instance, after)
	if err != nil {
		return nil, err
	}
	return &Poll{links: s, link: l, instance: instance, after: after, from: from}, nil
}

// Lasts is how long a host waits for an answer when nothing changes.
func (p *Poll) Lasts() time.Duration { return p.links.pollTime() }

// Due reports whether there may be another list than the host has, so that Look is worth its while.
func (p *Poll) Due() bool { return p.from == 0 || p.links.Hub.Changed(p.link.id, p.from) }

// Await has wake called once, when there may be another list; at once if there may be now. wake must return at once,
// and call nothing of the server. Leave ends the waiting.
func (p *Poll) Await(wake func()) {
	p.waiting.Wake = wake
	if p.from == 0 || !p.links.Hub.Enter(p.link.id, p.from, &p.waiting) {
		wake()
	}
}

// Leave ends an Await. wake may have been called.
func (p *Poll) Leave() { p.links.Hub.Leave(p.link.id, &p.waiting) }

// Look reads the list; changed is false when the host has that one.
func (p *Poll) Look(ctx context.Context) (list fleet.WantedList, changed bool, err error) {
	l := p.link
	list, sum, err := p.links.list(ctx, l, p.from)
	if err != nil {
		return fleet.WantedList{}, false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.instance != p.instance {
		return fleet.WantedList{}, false, anotherAgent(l, "a newer agent took over from this one")
	}
	same := p.after != 0 && l.sent == p.after && l.list == sum
	p.from, l.checked = list.Revision, list.Revision
	l.empty = len(list.VMs)+len(list.Streams)+len(list.Images) == 0 && !list.Closed && len(l.elsewhere) == 0
	if !same {
		l.sent, l.list = list.Revision, sum
	}
	return list, !same, nil
}

func nonTimeout(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// polls lets the agent that speaks for the host ask, and says from which revision on it is to wait; 0: what it has is
// not what it was sent last, and it is told at once.
func (s *Links) polls(l *link, instance string, after int64) (from int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := s.speaks(l, fleet.Report{Instance: instance}, s.Now()); err != nil {
		return 0, err
	}
	l.pulse.beat(s.Now(), l.clock)
	if after == 0 || l.sent != after {
		return 0, nil
	}
	return max(l.checked, after), nil
}

// saw enters that the host was there until now.
func (s *Links) saw(l *link, instance string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.instance == instance {
		l.pulse.beat(s.Now(), l.clock)
	}
}

// list is all that is wanted of a host, of one snapshot, and its sum without what changes by itself. A host without VMs
// whose own part of the store did not change after a revision is not looked up: when something concerns all hosts, all
// of them ask at once.
func (s *Links) list(ctx context.Context, l *link, after int64) (list fleet.WantedList, sum [sha256.Size]byte,
	err error) {
	l.mu.Lock()
	elsewhere, empty := l.elsewhere, l.empty && after != 0
	l.mu.Unlock()
	list = fleet.WantedList{VMs: []fleet.WantedVM{}, Spread: s.spread().Seconds()}
	if changed, upTo := s.Hub.Own(l.id, after); empty && !changed {
		list.Revision = upTo
		err = s.ofAllHosts(ctx, &list)
	} else {
		err = s.Store.View(ctx, func(t *store.Tx) error { return s.readList(t, l.id, elsewhere, &list) })
	}
	if err != nil {
		return list, sum, err
	}
	plain := list
	plain.Revision, plain.Spread = 0, 0
	text, err := json.Marshal(plain)
	return list, sha256.Sum256(text), err
}

func (s *Links) readList(t *store.Tx, host string, elsewhere []string, list *fleet.WantedList) error {
	h, err := t.HostBrief(host)
	if err != nil {
		return err
	}
	list.Revision, list.VMs, list.Streams = t.Revision(), []fleet.WantedVM{}, nil
	list.Closed = h.Closed || h.Drain.Active()
	if list.Settings, err = HostSettings(t); err != nil {
		return err
	}
	if list.FileSystems, err = FileSystemDrains(t); err != nil {
		return err
	}
	if err := imageOrders(t, host, list); err != nil {
		return err
	}
	if err := wantedVMs(t, host, elsewhere, list); err != nil {
		return err
	}
	if err := evictedVMs(t, host, list); err != nil {
		return err
	}
	streams, err := t.Streams(host)
	for _, o := range streams {
		list.Streams = append(list.Streams,
			fleet.StreamOrder{ID: o.ID, VM: o.VM, Kind: o.Kind, Port: o.Port, Server: o.Server})
	}
	return err
}

// wantedVMs are those that have their place on the host, and those that the host still has though they have their place
// elsewhere by now: they are to go. A lost one is not wanted anywhere.
func wantedVMs(t *store.Tx, host string, elsewhere []string, list *fleet.WantedList) error {
	here, err := t.VMs(store.VMFilter{Host: host})
	if err != nil {
		return err
	}
	walls := &firewalls{Tx: t}
	networks := map[string]farm.FleetNetwork{}
	network := func(name string) (farm.FleetNetwork, error) {
		n, ok := networks[name]
		if !ok && name != "" {
			if n, err = t.Network(name); err != nil && !action.Missing(err) {
				return n, err
			}
			networks[name] = n
		}
		return n, nil
	}
	for _, vm := range here {
		n, err := network(vm.Network)
		if err != nil {
			return err
		}
		switch {
		case vm.Observed.Disowned && vm.Wanted.Power == farm.PowerDeleted:
			list.VMs = append(list.VMs, unwanted(vm.ID))
		case !vm.Observed.Disowned && (vm.Observed.State != farm.VMLost || vm.Wanted.Power == farm.PowerDeleted):
			wall, err := walls.of(vm)
			if err != nil {
				return err
			}
			list.VMs = append(list.VMs, wire.WantedVM(vm, n, wall))
		}
	}
	places, err := t.VMHosts(elsewhere)
	if err != nil {
		return err
	}
	for _, id := range elsewhere {
		if place := places[id]; place != "" && place != host {
			list.VMs = append(list.VMs, unwanted(id))
		}
	}
	return moveOrders(t, host, list, network, walls)
}

// unwanted is a VM that is to go from a host, which learns nothing of it: the host may know no more than its ID.
func unwanted(id string) fleet.WantedVM {
	return fleet.WantedVM{ID: id, Power: string(farm.PowerDeleted)}
}

// imageOrders are what the host is to do with images, and the revision of the catalogue that it is to have.
func imageOrders(t *store.Tx, host string, list *fleet.WantedList) (err error) {
	rows := store.ImagesOf(t)
	if list.Catalogue, err = rows.Changed(); err != nil {
		return err
	}
	tasks, err := rows.ActiveTasks(host)
	list.Images = nil
	for _, task := range tasks {
		list.Images = append(list.Images,
			fleet.ImageOrder{ID: task.Order, Op: string(task.Op), Name: task.Name, Digests: task.Digests})
	}
	return err
}

// ofAllHosts enters what every host's list has: settings, drains of file systems and the revision of the catalogue of
// images, read once for all hosts after each change.
func (s *Links) ofAllHosts(ctx context.Context, list *fleet.WantedList) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settingsAt == 0 || s.settingsAt < s.Hub.OfAll() {
		err := s.Store.View(ctx, func(t *store.Tx) (err error) {
			if s.settings, err = HostSettings(t); err != nil {
				return err
			}
			if s.drains, err = FileSystemDrains(t); err != nil {
				return err
			}
			s.catalogue, err = store.ImagesOf(t).Changed()
			s.settingsAt = t.Revision()
			return err
		})
		if err != nil {
			s.settingsAt = 0
			return err
		}
	}
	list.Settings, list.FileSystems, list.Catalogue = s.settings, s.drains, s.catalogue
	return nil
}

// SettingFileSystems is the setting with the drains of file systems, which all hosts are told.
const SettingFileSystems = "file-systems"

// FileSystemDrains are what is drained on all hosts.
func FileSystemDrains(t *store.Tx) (all []api.FileSystemDrain, err error) {
	text, err := t.Setting(SettingFileSystems)
	if action.Missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal(text, &all)
}

// HostSettings are what the server keeps of all agents' configuration.
func HostSettings(t *store.Tx) (v fleet.Settings, err error) {
	text, err := t.Setting(SettingHosts)
	if action.Missing(err) {
		return v, nil
	}
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal(text, &v)
}

// The pace of hosts. A host that is heard of twice in the time after which it counts as silent is never silent for one
// lost answer.

// pollTime is how long a poll may wait: less than otherBoot, for a host is heard of when it begins one.
func (s *hosts) pollTime() time.Duration { return min(s.Silence/3, otherBoot-10*time.Second) }

// pace is when a host with nothing new reports again: with many hosts later, so that reports cost a few per cent of a
// core.
func (s *hosts) pace() time.Duration {
	return min(max(30*time.Second, s.hostCount()*time.Second/50), 10*time.Minute)
}

// shakesPerCore is how many TLS handshakes a second each core of a server is asked for, so that half of it is left for
// all else: when more come at once all of them are slow, hosts give up and try again, and none gets through.
const shakesPerCore = 125

// spread is over how long hosts come back when all of them lost their connection.
func (s *hosts) spread() time.Duration {
	return max(time.Second, s.hostCount()*time.Second/time.Duration(shakesPerCore*runtime.GOMAXPROCS(0)))
}

func (s *hosts) hostCount() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(len(s.byID))
}
