package storetest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// vms: what people want, where it is, and what its host says are written apart from each other.
func vms(s *suite) {
	db, v := s.new(), aVM(1)
	revision := s.update(db, func(tx *store.Tx) error { return tx.InsertVM(v) })
	v.Revision, v.Changed = revision, revision
	check := func(what string) {
		s.Helper()
		s.view(db, func(tx *store.Tx) error {
			got, err := tx.VM(v.ID)
			same(s, what, v, err, got)
			got, err = tx.VMNamed(v.Project, v.Name)
			same(s, what+", by name", v, err, got)
			return nil
		})
	}
	check("inserted")

	other := aVM(1)
	other.Owner, other.Group, other.Shape.CPUs, other.Tags, other.Expires, other.Resize =
		"ben", "far", 16, nil, time.Time{}, nil
	other.Wanted = farm.Wanted{Power: farm.PowerDeleted, Boots: 7, Builds: 8, Fresh: 9}
	other.Cell, other.Host, other.Plan, other.Reservation, other.Waiting, other.Observed =
		"x", "x", farm.Plan{}, "x", "x", farm.Observed{}
	revision = s.update(db, func(tx *store.Tx) error { return tx.SetVM(other) })
	v.Owner, v.Group, v.Shape, v.Tags, v.Expires, v.Resize, v.Wanted =
		other.Owner, other.Group, other.Shape, nil, time.Time{}, nil, other.Wanted
	v.Revision, v.Changed = revision, revision
	check("wanted")

	v.Cell, v.Host, v.Plan, v.Reservation, v.Waiting = "b9", "h9", aPlan(9), "b", ""
	other = v
	other.Owner, other.Observed = "nobody", farm.Observed{}
	v.Revision = s.update(db, func(tx *store.Tx) error { return tx.SetVMPlace(other) })
	check("placed")

	v.Observed = farm.Observed{State: farm.VMFailed, Reason: "no disk", Since: noon.Add(time.Second)}
	v.Revision = s.update(db, func(tx *store.Tx) error { return tx.SetVMObserved(v.ID, v.Observed) })
	check("observed")

	s.update(db, func(tx *store.Tx) error { return tx.DeleteVM(v.ID) })
	for what, do := range map[string]func(*store.Tx) error{
		"deleted":  func(tx *store.Tx) error { _, err := tx.VM(v.ID); return err },
		"by name":  func(tx *store.Tx) error { _, err := tx.VMNamed(v.Project, v.Name); return err },
		"set":      func(tx *store.Tx) error { return tx.SetVM(v) },
		"place":    func(tx *store.Tx) error { return tx.SetVMPlace(v) },
		"observed": func(tx *store.Tx) error { return tx.SetVMObserved(v.ID, v.Observed) },
		"delete":   func(tx *store.Tx) error { return tx.DeleteVM(v.ID) },
	} {
		s.fails(what, s.in(db, do), store.CodeAbsent)
	}
}

func filters(s *suite) {
	db := s.new()
	var all []farm.VM
	s.update(db, func(tx *store.Tx) error {
		for n := range 12 {
			v := aVM(n)
			switch n {
			case 3:
				v.Host, v.Reservation = "", ""
			case 4:
				v.Host, v.Wanted.Power = "", farm.PowerDeleted
			case 5:
				v.Owner, v.Group, v.Expires = "ben", "far", time.Time{}
			case 6:
				v.Expires = noon.Add(time.Minute)
			case 7:
				v.Expires, v.Wanted.Power = noon.Add(time.Minute), farm.PowerDeleted
			}
			v.Revision, v.Changed = tx.Revision(), tx.Revision()
			all = append(all, v)
			if err := tx.InsertVM(v); err != nil {
				return err
			}
		}
		return nil
	})
	slices.SortFunc(all, func(a, b farm.VM) int { return strings.Compare(a.Project+"/"+a.Name, b.Project+"/"+b.Name) })
	for _, c := range []struct {
		name   string
		filter store.VMFilter
		want   func(farm.VM) bool
	}{
		{"all", store.VMFilter{}, func(farm.VM) bool { return true }},
		{"project", store.VMFilter{Project: "p1"}, func(v farm.VM) bool { return v.Project == "p1" }},
		{"host", store.VMFilter{Host: "h2"}, func(v farm.VM) bool { return v.Host == "h2" }},
		{"cell", store.VMFilter{Cell: "b1"}, func(v farm.VM) bool { return v.Cell == "b1" }},
		{"cell and project", store.VMFilter{Cell: "b1", Project: "p0"}, func(v farm.VM) bool {
			return v.Cell == "b1" &&
				v.Project == "p0"
		}},
		{"owner", store.VMFilter{Owner: "ben"}, func(v farm.VM) bool { return v.Owner == "ben" }},
		{"group", store.VMFilter{Group: "far"}, func(v farm.VM) bool { return v.Group == "far" }},
		{"unplaced", store.VMFilter{Unplaced: true}, func(v farm.VM) bool { return v.Name == "vm-003" }},
		{"reserved", store.VMFilter{Reserved: true}, func(v farm.VM) bool { return v.Name != "vm-003" }},
		{"deleting", store.VMFilter{Deleting: true}, func(v farm.VM) bool {
			return v.Name == "vm-004" ||
				v.Name == "vm-007"
		}},
		{"expired", store.VMFilter{ExpiresBefore: noon.Add(2 * time.Minute)},
			func(v farm.VM) bool { return v.Name == "vm-006" }},
		{"expires at that very time", store.VMFilter{ExpiresBefore: noon.Add(time.Minute)},
			func(farm.VM) bool { return false }},
	} {
		want := slices.DeleteFunc(slices.Clone(all), func(v farm.VM) bool { return !c.want(v) })
		s.view(db, func(tx *store.Tx) error {
			got, err := tx.VMs(c.filter)
			same(s, c.name, want, err, got)
			n, err := tx.CountVMs(c.filter)
			same(s, c.name+", counted", len(want), err, n)
			return s.states(tx, c.name+", their states", c.filter, want)
		})
		s.pages(db, c.name, c.filter, want)
	}
	for _, project := range []string{"", all[0].Project, "none"} {
		want := map[string][]string{}
		for _, v := range all {
			if v.Group != "" && (project == "" || v.Project == project) {
				want[v.Project+"/"+v.Group] = append(want[v.Project+"/"+v.Group], v.Name)
			}
		}
		s.view(db, func(tx *store.Tx) error {
			got, err := tx.Members(project)
			same(s, "members of groups of project "+project, want, err, got)
			return nil
		})
	}
}

// states compares what those who count are told of VMs.
func (s *suite) states(tx *store.Tx, name string, f store.VMFilter, want []farm.VM) error {
	line := func(v farm.VM) string {
		return fmt.Sprintf("%s %s %s %s %s %s", v.Project, v.Owner, v.Cell, v.Host, v.State(false), v.State(true))
	}
	var is, has []string
	for _, v := range want {
		is = append(is, line(v))
	}
	err := tx.EachVMState(f, func(v farm.VM) { has = append(has, line(v)) })
	slices.Sort(is)
	slices.Sort(has)
	same(s, name, is, err, has)
	return err
}

// pages reads a list page by page.
func (s *suite) pages(db *store.Store, name string, f store.VMFilter, want []farm.VM) {
	s.Helper()
	var got []farm.VM
	for f.Limit = 2; ; {
		var page []farm.VM
		s.view(db, func(tx *store.Tx) (err error) {
			page, err = tx.VMs(f)
			return err
		})
		if len(page) > 2 {
			s.Fatalf("%s: a page of %d", name, len(page))
		}
		if len(page) == 0 {
			break
		}
		got = append(got, page...)
		last := page[len(page)-1]
		f.After = last.Project + "/" + last.Name
	}
	same(s, name+", by pages", want, nil, got)
}

func vmTaken(s *suite) {
	db, old := s.new(), aVM(1)
	s.update(db, func(tx *store.Tx) error { return tx.InsertVM(old) })
	for what, change := range map[string]func(*farm.VM){
		"ID":        func(v *farm.VM) { v.ID = old.ID },
		"name":      func(v *farm.VM) { v.Project, v.Name = old.Project, old.Name },
		"address":   func(v *farm.VM) { v.Lease.Address = netip.MustParsePrefix("192.0.2.1/25") },
		"host name": func(v *farm.VM) { v.Lease.Hostname = old.Lease.Hostname },
		"MAC":       func(v *farm.VM) { v.Lease.MAC = old.Lease.MAC },
	} {
		v := aVM(2)
		change(&v)
		err := s.in(db, func(tx *store.Tx) error { return tx.InsertVM(v) })
		s.fails(what, err, store.CodeTaken)
		if err != nil && (!strings.Contains(err.Error(), what) ||
			!strings.Contains(err.Error(), old.Project+"/"+old.Name)) {
			s.Errorf("%s: %v", what, err)
		}
	}
	v := aVM(2)
	v.Lease = old.Lease
	v.Lease.Network, v.Lease.MAC, v.Name = "back", "52:54:00:00:00:ff", old.Name
	// another network and another project have their own names
	s.update(db, func(tx *store.Tx) error { return tx.InsertVM(v) })
	for n := range 2 {
		v := farm.VM{ID: "bare-" + string(rune('0'+n)), Project: "bare", Name: string(rune('0' + n))}
		s.update(db, func(tx *store.Tx) error { return tx.InsertVM(v) }) // no lease is no lease twice
	}
}

// leases survive everything, and are free when the VM's row is gone.
func leases(s *suite) {
	db, v := s.new(), aVM(1)
	s.update(db, func(tx *store.Tx) error { return tx.InsertVM(v) })
	s.update(db, func(tx *store.Tx) error {
		gone := v
		gone.Lease, gone.Wanted.Power = farm.Lease{}, farm.PowerDeleted
		return tx.SetVM(gone)
	})
	s.view(db, func(tx *store.Tx) error {
		got, err := tx.Leases("front")
		same(s, "leases", []farm.Lease{v.Lease}, err, got)
		got, err = tx.Leases("back")
		same(s, "of another network", nil, err, got)
		for _, by := range [][2]string{{"192.0.2.1", ""}, {"", v.Lease.Hostname}, {"192.0.2.9", v.Lease.Hostname}} {
			holder, err := tx.VMLeased("front", by[0], by[1])
			same(s, "who holds it", v.ID, err, holder.ID)
		}
		for _, c := range []struct {
			network, value string
			taken          bool
		}{{"front", "192.0.2.1", true}, {"front", v.Lease.Hostname, true}, {"back", "192.0.2.1", false}, {"back",
			v.Lease.Hostname, false}, {"front", "192.0.2.10", false}, {"front", "", false}} {
			address, err := tx.AddressLeased(c.network, c.value)
			if err != nil {
				return err
			}
			name, err := tx.NameLeased(c.network, c.value)
			same(s, "whether "+c.value+" is taken in "+c.network, c.taken, err, address || name)
		}
		addresses, err := tx.LeasedAddresses("front")
		same(s, "addresses", []string{"192.0.2.1"}, err, addresses)
		names, err := tx.LeasedNames("front")
		same(s, "names", []string{v.Lease.Hostname}, err, names)
		_, err = tx.VMLeased("front", "", "")
		s.fails("nothing asked", err, store.CodeAbsent)
		return nil
	})
	s.update(db, func(tx *store.Tx) error {
		if err := tx.DeleteVM(v.ID); err != nil {
			return err
		}
		v.ID, v.Name = "id-2", "vm-2"
		return tx.InsertVM(v)
	})
}

// vmLeaves: both hosts' lists change when a VM moves.
func vmLeaves(s *suite) {
	db, v := s.new(), aVM(1)
	v.Host = "h1"
	before := s.update(db, func(tx *store.Tx) error { return tx.InsertVM(v) })
	v.Host = "h2"
	now := s.update(db, func(tx *store.Tx) error { return tx.SetVMPlace(v) })
	got, upTo, err := db.Changes(s.ctx, before, 10)
	same(s, "changes", []store.Change{
		{Revision: now, Kind: store.KindVM, ID: v.ID, Project: v.Project, Host: "h1"},
		{Revision: now, Kind: store.KindVM, ID: v.ID, Project: v.Project, Host: "h2"},
	}, err, got)
	same(s, "up to", now, err, upTo)
}

func sameObserved(s *suite) {
	db, v := s.new(), aVM(1)
	before := s.update(db, func(tx *store.Tx) error { return tx.InsertVM(v) })
	after := s.update(db, func(tx *store.Tx) error { return tx.SetVMObserved(v.ID, v.Observed) })
	same(s, "revision", before, nil, after)
}

func sums(s *suite) {
	db := s.new()
	s.update(db, func(tx *store.Tx) error {
		for n := range 6 {
			v := aVM(n)
			v.Project, v.Cell, v.Host, v.Resize = "p", "b", "h", nil
			if n == 0 {
				v.Wanted.Power = farm.PowerDeleted
			}
			if n == 5 {
				v.Host = ""
			}
			if n == 4 {
				larger := v.Shape
				larger.CPUs, larger.Memory = larger.CPUs+3, larger.Memory/2
				v.Resize = &larger // the larger of both, until it is decided
			}
			if err := tx.InsertVM(v); err != nil {
				return err
			}
		}
		return nil
	})
	times := func(n int) farm.Quota {
		shape := aShape("")
		return farm.Quota{VMs: n, CPUs: n*shape.CPUs + 3, Memory: farm.Bytes(n) * shape.Memory,
			Scratch: farm.Bytes(n) * shape.Scratch}
	}
	s.view(db, func(tx *store.Tx) error {
		got, err := tx.Used("p")
		same(s, "of the project", times(5), err, got)
		cells, err := tx.UsedCells()
		same(s, "of the cells", map[string]farm.Quota{"b": times(5)}, err, cells)
		got, err = tx.Used("none")
		same(s, "of nothing", farm.Quota{}, err, got)
		hosts, err := tx.UsedHosts([]farm.Host{{ID: "h"}, {ID: "none"}, {ID: ""}})
		// one is to be deleted, and one has no host
		same(s, "of hosts", map[string]farm.Quota{"h": times(5)}, err, hosts)
		return nil
	})
}

// placed: the placer's claim counts for a VM as it was read, and for no other.
func placed(s *suite) {
	db, v := s.new(), aVM(1)
	v.Host, v.Reservation, v.Waiting = "", "", "no room"
	read := s.update(db, func(tx *store.Tx) error { return tx.InsertVM(v) })
	v.Changed = read
	place := func(v farm.VM) (ok bool, revision int64) {
		s.Helper()
		revision = s.update(db, func(tx *store.Tx) (err error) {
			ok, err = tx.PlaceVM(v)
			return err
		})
		return ok, revision
	}
	wait := func(text string) int64 {
		s.Helper()
		return s.update(db, func(tx *store.Tx) error { return tx.SetVMWaiting(v.ID, text) })
	}
	same(s, "the same reason again", read, nil, wait("no room"))
	same(s, "another reason", read+1, nil, wait("no room at all"))

	v.Cell, v.Host, v.Plan = "b9", "h9", aPlan(9)
	stale := v
	stale.Changed--
	if ok, revision := place(stale); ok || revision != read+1 {
		s.Errorf("people want something else by now: placed %v, revision %d", ok, revision)
	}
	ok, revision := place(v)
	if !ok {
		s.Fatal("it was not placed")
	}
	v.Revision, v.Waiting = revision, ""
	s.view(db, func(tx *store.Tx) error {
		got, err := tx.VM(v.ID)
		same(s, "placed", v, err, got)
		return nil
	})
	changes, _, err := db.Changes(s.ctx, revision-1, 10)
	same(s, "the host's list changes",
		[]store.Change{{Revision: revision, Kind: store.KindVM, ID: v.ID, Project: v.Project, Host: "h9"}},
		err, changes)
	same(s, "a reason for what has a host", revision, nil, wait("no room"))
	for what, change := range map[string]func(*farm.VM){
		"it has a host": func(*farm.VM) {},
		"it is gone":    func(v *farm.VM) { v.ID = "gone" },
	} {
		other := v
		change(&other)
		if ok, now := place(other); ok || now != revision {
			s.Errorf("%s: placed %v, revision %d", what, ok, now)
		}
	}
	deleted := aVM(2)
	deleted.Host, deleted.Reservation, deleted.Wanted.Power = "", "", farm.PowerDeleted
	deleted.Changed = s.update(db, func(tx *store.Tx) error { return tx.InsertVM(deleted) })
	deleted.Host = "h9"
	if ok, _ := place(deleted); ok {
		s.Error("what is to be deleted was placed")
	}
}
