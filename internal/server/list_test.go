package server

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// lookers are callers of every kind, by what they are.
var lookers = map[string]farm.Identity{
	"root": root, "everywhere": site, "one project": ann, "two projects": {User: "duo"}, "a cell": {User: "cel"},
	"a cell and a project": {User: "mix"},
	"a project on a cell":  {User: "nar"}, "two cells": {User: "two"}, "a cell twice": {User: "dup"}, "nobody": eve,
	"not known": {}, "a host": {Host: "id-h1"},
	"a token for a project":            {User: "site", Means: "token", Projects: []string{"atlas"}},
	"a cell's token for a project":     {User: "cel", Means: "token", Projects: []string{"zeta"}},
	"a project, and another on a cell": {User: "par"}, "no such role": {User: "odd"},
}

const crowded = 200 // VMs

// crowd is a lab with hosts that speak, are silent and are not there, and VMs in every state on them.
func crowd(t *testing.T, r *rand.Rand) *lab {
	l := newLab(t)
	old, gone := l.host("h2", "west"), l.host("h3", "east")
	l.pass(time.Hour)
	young := l.host("h1", "east")
	l.update(func(tx *store.Tx) error {
		for _, g := range []farm.Grant{{User: "duo", Role: farm.RoleMember, Project: "alice"},
			{User: "duo", Role: farm.RoleReader, Project: "zeta"}, {User: "cel", Role: farm.RoleReader, Cell: "west"},
			{User: "mix", Role: farm.RoleOperator, Cell: "west"}, {User: "mix", Role: farm.RoleMember, Project: "zeta"},
			{User: "nar", Role: farm.RoleReader, Project: "atlas", Cell: "west"},
			{User: "two", Role: farm.RoleReader, Cell: "west"}, {User: "two", Role: farm.RoleReader, Cell: "east"},
			{User: "dup", Role: farm.RoleReader, Cell: "east"},
			{User: "dup", Role: farm.RoleReader, Project: "alice", Cell: "east"},
			{User: "odd", Role: "boss", Cell: "west"}, {User: "par", Role: farm.RoleReader, Project: "alice"},
			{User: "par", Role: farm.RoleReader, Project: "atlas", Cell: "west"}} {
			if err := tx.PutGrant(g); err != nil {
				return err
			}
		}
		for n := range crowded {
			if err := tx.InsertVM(anyVM(r, n, []string{"", young.ID, young.ID, old.ID, gone.ID})); err != nil {
				return err
			}
		}
		return tx.DeleteHost(gone.ID)
	})
	return l
}

func anyVM(r *rand.Rand, n int, hosts []string) farm.VM {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	vm := farm.VM{ID: fmt.Sprint("id-", n), Name: fmt.Sprint("vm-", n), Project: pick("alice", "atlas", "zeta"),
		Owner: pick("ann", "otto"), Group: pick("", "ha"), Cell: pick("", "east", "west"), Host: pick(hosts...),
		Image: "micro", Tags: map[string]string{"n": pick("0", "1")}, Created: time.Unix(0, 0).UTC()}
	if r.IntN(4) == 0 {
		vm.Tags["odd"] = `","Wanted":{"Power":"off"},"State":"lost`
	}
	vm.Wanted.Power = farm.Power(pick("", string(farm.PowerOn), string(farm.PowerOn), string(farm.PowerOff),
		string(farm.PowerDeleted)))
	states := []farm.VMState{"", farm.VMStarting, farm.VMRunning, farm.VMStopping, farm.VMStopped, farm.VMStopped,
		farm.VMFailed, farm.VMLost, farm.VMGone}
	vm.Observed = farm.Observed{State: states[r.IntN(len(states))], Reason: pick("", `its guest powered "off"`)}
	return vm
}

// slowly are the VMs of a filter that a caller sees, with their states: all VMs are looked at.
func (l *lab) slowly(who farm.Identity, f VMFilter) (all []string, states map[farm.VMState]int) {
	l.t.Helper()
	states = map[farm.VMState]int{}
	err := l.look(l.t.Context(), who, policy.ReadVM, func(c *call) error {
		vms, err := c.Tx.VMs(store.VMFilter{})
		for _, vm := range vms {
			is := func(wanted, has string) bool { return wanted == "" || wanted == has }
			if !c.Sees(vm) || !f.names(vm) || !is(f.Project, vm.Project) || !is(f.Cell, vm.Cell) ||
				!is(f.Host, vm.Host) || !is(f.Owner, vm.Owner) || !is(f.Group, vm.Group) {
				continue
			}
			view, err := c.show(vm)
			if err != nil {
				return err
			}
			if is(string(f.State), string(view.State)) {
				all = append(all, action.Label(vm)+" "+string(view.State))
				states[view.State]++
			}
		}
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return all, states
}

// paged are the same, page by page.
func (l *lab) paged(who farm.Identity, f VMFilter) (all []string) {
	l.t.Helper()
	for {
		page, err := l.VMs.List(l.t.Context(), who, f)
		if err != nil {
			l.t.Fatal(err)
		}
		if len(page.Items) > f.Limit || page.Next != "" && len(page.Items) < f.Limit {
			l.t.Fatalf("a page of %d, where %d are asked for, and next is %q", len(page.Items), f.Limit, page.Next)
		}
		for _, v := range page.Items {
			all = append(all, action.Label(v.VM)+" "+string(v.State))
		}
		if f.After = page.Next; f.After == "" {
			return all
		}
	}
}

// Pages of every size are together the whole list, for callers of every kind and whatever is asked for; so are the
// counts.
func TestPages(t *testing.T) {
	l := crowd(t, rand.New(rand.NewPCG(1, 2)))
	for name, who := range lookers {
		for _, f := range []VMFilter{{}, {Project: "atlas"}, {Project: "alice", Cell: "east"}, {Cell: "west"},
			{Cell: "east"}, {Owner: "otto"}, {Group: "ha"}, {Host: "id-h1"}, {Host: "id-h2", Project: "zeta"},
			{State: farm.VMRunning}, {State: farm.VMUnknown, Cell: "west"}, {Name: "vm-1*"}, {Name: "no"},
			{Tags: map[string]string{"n": "1"}}} {
			want, _ := l.slowly(who, f)
			for _, f.Limit = range []int{7, 59, crowded - 1, crowded, 1000} {
				if d := cmp.Diff(want, l.paged(who, f)); d != "" {
					t.Fatalf("%s, %+v (-want +got):\n%s", name, f, d)
				}
			}
		}
		_, want := l.slowly(who, VMFilter{})
		got, revision, err := l.VMs.Count(t.Context(), who)
		if d := cmp.Diff(want, got); d != "" || err != nil || revision == 0 {
			t.Errorf("%s, counted: %v at %d (-want +got):\n%s", name, err, revision, d)
		}
	}
	if want, _ := l.slowly(site, VMFilter{}); cmp.Diff(want, l.paged(site, VMFilter{Limit: 1})) != "" {
		t.Error("one by one it is another list")
	}
	if got, err := l.VMs.List(t.Context(), root, VMFilter{After: "~/~", Limit: 1}); err != nil || len(got.Items) > 0 ||
		got.Revision == 0 {
		t.Errorf("behind all: %+v, %v", got, err)
	}
}

// TestListReadsSome: a request reads a bounded number of VMs, however few of them its filter chooses. Its pages
// together have each VM that is chosen once.
func TestListReadsSome(t *testing.T) {
	l := newLab(t)
	const some = mostRead + 2000
	l.update(func(tx *store.Tx) error {
		for n := range some {
			project := []string{"alice", "atlas"}[n%2]
			name := fmt.Sprintf("v%05d", n)
			vm := farm.VM{ID: "id-" + name, Project: project, Name: name, Owner: "ann"}
			if err := tx.InsertVM(vm); err != nil {
				return err
			}
		}
		return tx.PutGrant(farm.Grant{User: "ann", Role: farm.RoleReader, Project: "atlas"})
	})
	for _, who := range []farm.Identity{root, ann} {
		for pattern, want := range map[string]int{"none": 0, "v*00": some / 100, "v11*9": 100} {
			f, pages, got := VMFilter{Name: pattern}, 0, map[string]bool{}
			for f.After != "" || pages == 0 {
				list, err := l.VMs.List(t.Context(), who, f)
				if err != nil {
					t.Fatal(err)
				}
				for _, vm := range list.Items {
					got[vm.Name] = true
				}
				if f.After, pages = list.Next, pages+1; pages > 10 {
					t.Fatal("no end")
				}
			}
			if len(got) != want || pages < 2 && pattern != "v11*9" {
				t.Errorf("%s of %s: %d VMs on %d pages", pattern, who.User, len(got), pages)
			}
		}
	}
}
