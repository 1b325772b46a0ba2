package server

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/hostlink"
	"github.com/grange-project/grange/internal/store"
)

// Who may make join tokens where: ada in east, wes in west, site everywhere.
var (
	ada = farm.Identity{User: "ada", Means: "token", Source: "t4"}
	wes = farm.Identity{User: "wes", Means: "token", Source: "t5"}
)

func newCells(t *testing.T) *lab {
	l := newLab(t)
	l.update(func(tx *store.Tx) error {
		return errors.Join(tx.PutUser(farm.User{Name: "ada"}), tx.PutUser(farm.User{Name: "wes"}),
			tx.PutGrant(farm.Grant{User: "ada", Role: farm.RoleAdmin, Cell: "east"}),
			tx.PutGrant(farm.Grant{User: "wes", Role: farm.RoleAdmin, Cell: "west"}))
	})
	return l
}

// enrols joins under a name, and tells how that ended.
func (l *lab) enrols(token string, shown []*x509.Certificate, name, machine string) (fleet.EnrolAnswer, error) {
	l.t.Helper()
	h := &linked{lab: l}
	return l.Links.Enrol(l.t.Context(), shown,
		fleet.EnrolRequest{Token: token, CSR: h.request(), Name: name, MachineID: machine, Replace: true,
			Now: l.clock()})
}

// Who takes the place of host wn-1 of cell east, whose machine-id is "wn-1".
func TestWhoReplacesAHost(t *testing.T) {
	type order struct {
		who  farm.Identity
		cell string
		name string
		many int
	}
	named, unnamed, many := order{ada, "east", "wn-1", 0}, order{ada, "east", "", 0}, order{ada, "east", "", 50}
	const silent, living, fenced = "silent", "living", "fenced"
	type try struct {
		order   order
		host    string
		machine string
		proof   bool
		want    farm.Code
	}
	var tries []try
	for _, machine := range []string{"wn-1", "not-wn-1", ""} {
		for _, o := range []order{named, {site, "west", "wn-1", 0}} {
			tries = append(tries, try{o, silent, machine, false, ""}, try{o, fenced, machine, false, ""},
				try{o, living, machine, false, farm.CodeHostAnswers}, try{o, living, machine, true, ""},
				try{o, silent, machine, true, ""})
		}
		for _, o := range []order{unnamed, many, {site, "west", "", 50}} {
			proven := farm.Code("")
			if machine == "not-wn-1" {
				proven = hostlink.CodeJoinRefused // a clone
			}
			tries = append(tries, try{o, silent, machine, false, hostlink.CodeJoinRefused},
				try{o, living, machine, false, hostlink.CodeJoinRefused}, try{o, fenced, machine, false,
					hostlink.CodeJoinRefused},
				try{o, living, machine, true, proven}, try{o, silent, machine, true, proven})
		}
		// of one who has no say where the host is
		for _, o := range []order{{wes, "west", "", 0}, {wes, "west", "", 50}} {
			for _, host := range []string{silent, living, fenced} {
				tries = append(tries, try{o, host, machine, false, hostlink.CodeJoinRefused},
					try{o, host, machine, true, hostlink.CodeJoinRefused})
			}
		}
	}
	l := newCells(t)
	for i, tt := range tries {
		name := fmt.Sprintf("wn-%d", i)
		at := func(text string) string { return strings.Replace(text, "wn-1", name, 1) }
		h := l.joined(name)
		h.tell(fleet.Report{Instance: name, Facts: h.facts(name, "boot")})
		l.Links.WriteSeen(t.Context())
		if tt.host != living {
			l.pass(2 * l.Links.Silence)
		}
		if tt.host == fenced {
			if _, err := l.Hosts.Fence(t.Context(), site, name, 0, "off"); err != nil {
				t.Fatal(err)
			}
		}
		_, token, err := l.Links.CreateJoinToken(t.Context(), tt.order.who,
			hostlink.JoinOrder{Cell: tt.order.cell, Name: at(tt.order.name), Count: tt.order.many})
		if err != nil {
			t.Fatal(err)
		}
		var shown []*x509.Certificate
		if tt.proof {
			shown = h.chain
		}
		_, err = l.enrols(token, shown, name, at(tt.machine))
		if codeOf(err) != tt.want || err != nil && tt.want == "" {
			t.Errorf("%+v: %v, want %q", tt, err, tt.want)
		}
		if _, err := l.Links.HostAt(t.Context(), h.chain); (err == nil) != (tt.want != "") {
			t.Errorf("%+v: its certificate then: %v", tt, err)
		}
	}
}

// The rights count that the maker of a token has when it is used, where the host is then.
func TestRightsOfAJoinTokensMaker(t *testing.T) {
	l := newCells(t)
	h := l.joined("wn-1")
	if _, _, err := l.Links.CreateJoinToken(t.Context(), wes,
		hostlink.JoinOrder{Cell: "west", Name: "wn-1"}); codeOf(err) != farm.CodeNoRole {
		t.Errorf("a token for a host of another cell: %v", err)
	}
	token := func(who farm.Identity, o hostlink.JoinOrder) string {
		t.Helper()
		_, text, err := l.Links.CreateJoinToken(t.Context(), who, o)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	early := token(wes, hostlink.JoinOrder{Cell: "west", Name: "wn-2"}) // before there is one
	l.joined("wn-2")
	if _, err := l.enrols(early, nil, "wn-2", ""); codeOf(err) != hostlink.CodeJoinRefused {
		t.Errorf("for a host that came later: %v", err)
	}
	moved := token(ada, hostlink.JoinOrder{Cell: "east", Name: "wn-1"})
	l.update(func(tx *store.Tx) error {
		row, err := tx.Host(h.id)
		row.Cell = "west"
		return errors.Join(err, tx.SetHost(row))
	})
	if _, err := l.enrols(moved, nil, "wn-1", ""); codeOf(err) != hostlink.CodeJoinRefused {
		t.Errorf("for a host that is elsewhere by now: %v", err)
	}
	fresh := func(name string) error {
		_, err := l.enrols(token(ada, hostlink.JoinOrder{Cell: "east"}), nil, name, "")
		return err
	}
	if err := fresh("wn-3"); err != nil {
		t.Fatal(err)
	}
	ended, gone := token(ada, hostlink.JoinOrder{Cell: "east"}), token(ada, hostlink.JoinOrder{Cell: "east", Count: 9})
	l.update(func(tx *store.Tx) error {
		return tx.DeleteGrant(farm.Grant{User: "ada", Role: farm.RoleAdmin, Cell: "east"})
	})
	if _, err := l.enrols(ended, nil, "wn-4", ""); codeOf(err) != hostlink.CodeJoinRefused {
		t.Errorf("by a maker without the role: %v", err)
	}
	l.update(func(tx *store.Tx) error { return tx.PutUser(farm.User{Name: "ada", Disabled: true}) })
	if _, err := l.enrols(gone, nil, "wn-4", ""); codeOf(err) != hostlink.CodeJoinRefused ||
		!strings.Contains(err.Error(), "disabled") {
		t.Errorf("by a maker who is disabled: %v", err)
	}
	if _, err := l.enrols(token(root, hostlink.JoinOrder{Cell: "east"}), nil, "wn-4", ""); err != nil {
		t.Errorf("by root: %v", err)
	}
}

// secrets makes a VM with all that its host is sent of it.
func (l *lab) secretVM(name string, at farm.Host) farm.VM {
	l.t.Helper()
	made, err := l.VMs.Create(l.t.Context(), root, CreateVM{Project: "alice", Name: name, Image: "micro",
		Shape: "small", Network: "lan", Keys: []string{"ssh-ed25519 " +
			"AAAAC3NzaC1lZDI1NTE5AAAAIDw7yRrpd3SBiDiRcBm9jyy8yiUXfXzzdRcYYjHNDeQp ann"},
		UserData: []byte("#cloud-config\npassword: hunter2"), Tags: map[string]string{"tier": "db"}})
	if err != nil {
		l.t.Fatal(err)
	}
	vm := made.VMs[0].VM
	l.put(vm, at)
	l.update(func(tx *store.Tx) error {
		return tx.SetVMObserved(vm.ID, farm.Observed{State: farm.VMRunning, Since: l.clock()})
	})
	return vm
}

func (h *linked) wanted(instance string) []fleet.WantedVM {
	h.t.Helper()
	list, _, err := h.Links.Wanted(h.t.Context(), h.who(), instance, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	return list.VMs
}

// A machine that took a host's place without its key gets nothing of the VMs of before, whatever it reports of them;
// one that has the key goes on with them.
func TestReplacedHostsVMs(t *testing.T) {
	l := newCells(t)
	h := l.joined("wn-1")
	h.tell(fleet.Report{Instance: "a", Facts: h.facts("a", "boot")})
	vm, ends := l.secretVM("db", farm.Host{ID: h.id, Cell: "east"}), l.secretVM("old",
		farm.Host{ID: h.id, Cell: "east"})
	l.update(func(tx *store.Tx) error {
		row, err := tx.VM(ends.ID)
		row.Wanted.Power = farm.PowerDeleted
		return errors.Join(err, tx.SetVM(row))
	})
	rejoin := func(o hostlink.JoinOrder, shown []*x509.Certificate) {
		t.Helper()
		_, token, err := l.Links.CreateJoinToken(t.Context(), ada, o)
		if err != nil {
			t.Fatal(err)
		}
		csr := h.request()
		a, err := l.Links.Enrol(t.Context(), shown,
			fleet.EnrolRequest{Token: token, CSR: csr, Name: "wn-1", MachineID: "wn-1", Replace: true, Now: l.clock()})
		if err != nil {
			t.Fatal(err)
		}
		h.chain = parsed(t, a.Certificate)
	}
	rejoin(hostlink.JoinOrder{Cell: "east"}, h.chain)
	if got := h.wanted("a"); len(got) != 2 || string(got[0].UserData) == "" {
		t.Fatalf("with its own key: %+v", got)
	}
	l.update(func(tx *store.Tx) error {
		return tx.PutStream(store.Stream{ID: "s1", Host: h.id, VM: vm.ID, Kind: "console",
			Server: "https://server.example.org", Created: l.clock()})
	})
	l.pass(2 * l.Links.Silence)
	rejoin(hostlink.JoinOrder{Cell: "east", Name: "wn-1"}, nil)
	gone := fleet.WantedVM{ID: ends.ID, Power: "deleted"}
	h.tell(fleet.Report{Instance: "b", Facts: h.facts("b", "boot 2")})
	for _, says := range [][]fleet.Observed{nil,
		{{ID: vm.ID, State: "running", Since: l.clock()}, {ID: ends.ID, State: "running", Since: l.clock()}},
		{{ID: vm.ID, State: "gone"}}} {
		for _, whole := range []bool{false, true} {
			if whole && says == nil {
				continue // below: it is the end of what was to be deleted
			}
			h.tell(fleet.Report{Instance: "b", Whole: whole, Wanted: 1, VMs: says})
			if got := h.wanted("b"); len(got) != 1 || !same(got[0], gone) {
				t.Errorf("after a report of %v: %+v", says, got)
			}
		}
	}
	list, _, err := l.Links.Wanted(t.Context(), h.who(), "b", 0)
	if err != nil || len(list.Streams) != 0 {
		t.Errorf("streams %v, %v", list.Streams, err)
	}
	view, err := l.VMs.Get(t.Context(), root, "alice/db")
	if err != nil || view.State != farm.VMLost {
		t.Errorf("it is %s, %v", view.State, err)
	}
	h.tell(fleet.Report{Instance: "b", Whole: true, Wanted: list.Revision})
	if _, err := l.VMs.Get(t.Context(), root, "alice/old"); codeOf(err) != farm.CodeNoVM {
		t.Errorf("what was to be deleted: %v", err)
	}
	if got := h.wanted("b"); len(got) != 0 {
		t.Errorf("then: %+v", got)
	}
}

func same(a, b fleet.WantedVM) bool { return fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", b) }

// A hostile host learns nothing of other hosts' VMs by reporting their IDs, and its reports are bounded.
func TestReportOfForeignVMs(t *testing.T) {
	l := newCells(t)
	a, b := l.joined("wn-1"), l.joined("wn-2")
	a.tell(fleet.Report{Instance: "a", Facts: a.facts("a", "boot")})
	vm := l.secretVM("db", farm.Host{ID: b.id, Cell: "east"})
	for _, state := range []string{"starting", "running", "stopping", "stopped", "deleting", "gone", "failed"} {
		for _, whole := range []bool{true, false} {
			a.tell(fleet.Report{Instance: "a", Whole: whole, Wanted: 1 << 40,
				VMs: []fleet.Observed{{ID: vm.ID, State: state, Since: l.clock()},
					{ID: strings.ToUpper(vm.ID), State: state}}})
			got := a.wanted("a")
			want := []fleet.WantedVM{{ID: vm.ID, Power: "deleted"}}
			if state == "gone" {
				want = nil
			}
			if !slices.EqualFunc(got, want, same) {
				t.Errorf("%s: wanted is %+v", state, got)
			}
		}
	}
	view, err := l.VMs.Get(t.Context(), root, "alice/db")
	if err != nil || view.Host != b.id || view.State != farm.VMUnknown && view.State != farm.VMRunning {
		t.Errorf("the VM of the other: %s on %s, %v", view.State, view.Host, err)
	}
	many := fleet.Report{Instance: "a"}
	for i := range hostlink.MaxReported + 1 {
		many.VMs = append(many.VMs, fleet.Observed{ID: fmt.Sprint(i), State: "running"})
	}
	if got := a.refused(many); got != hostlink.CodeReportLong {
		t.Errorf("%d VMs: %q", len(many.VMs), got)
	}
	many.VMs = many.VMs[:hostlink.MaxReported]
	a.tell(many)
}

// TestThreadsOfAHost: the server remembers how many threads a host had when it joined and at most, and since when it
// knows the host; one that joins again is counted again.
func TestThreadsOfAHost(t *testing.T) {
	l := newLab(t)
	h := l.joined("wn-1")
	known := l.clock()
	check := func(first, most int) {
		t.Helper()
		l.view(func(tx *store.Tx) error {
			got, err := tx.Host(h.id)
			if got.Threads != (farm.Threads{First: first, Most: most}) || !got.Known.Equal(known) {
				t.Errorf("%+v, known since %v", got.Threads, got.Known)
			}
			return err
		})
	}
	reports := func(online string) {
		f := h.facts("wn-1", "boot")
		f.Topology.Online = online
		h.tell(fleet.Report{Instance: "wn-1", Facts: f})
	}
	check(0, 0)
	reports("0-15")
	check(16, 16)
	reports("0-7")
	check(16, 16)
	reports("0-4095")
	check(16, 4096)
	l.pass(time.Hour)
	_, token, err := l.Links.CreateJoinToken(t.Context(), site, hostlink.JoinOrder{Cell: "east", Name: "wn-1"})
	if err != nil {
		t.Fatal(err)
	}
	a, err := l.Links.Enrol(t.Context(), h.chain, fleet.EnrolRequest{Token: token, CSR: h.request(), Name: "wn-1",
		MachineID: "wn-1", Replace: true, Now: l.clock()})
	if err != nil || a.Host != h.id {
		t.Fatal(a.Host, err)
	}
	h.chain = parsed(t, a.Certificate)
	check(0, 0)
	reports("0-31")
	check(32, 32)
}
