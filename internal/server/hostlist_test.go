package server

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/store"
)

// hostNames are the names of hosts.
func hostNames(views []HostView) (names []string) {
	for _, v := range views {
		names = append(names, v.Name)
	}
	return names
}

// mixed is a farm of hosts in all states: every third in west, every fourth closed, every fifth draining, every seventh
// silent. One has the name of another's ID.
func mixed(t *testing.T) *lab {
	l := newLab(t)
	for n := range 40 {
		l.host(fmt.Sprintf("node-%02d", n), []string{"west", "east", "east"}[n%3])
	}
	l.host("id-node-07", "east")
	l.pass(l.Links.Silence + time.Second)
	l.update(func(tx *store.Tx) error {
		hosts, err := tx.HostsBrief("")
		for n, h := range hosts {
			h.Closed = n%4 == 0
			if n%5 == 0 {
				h.Drain = farm.Drain{Since: l.clock()}
			}
			if n == 31 {
				h.Fenced = l.clock()
			}
			err = errors.Join(err, tx.SetHost(h))
			if n%7 != 0 {
				err = errors.Join(err, tx.SetHostSeen(h.ID, l.clock(), 0))
			}
			if n%9 == 0 {
				err = errors.Join(err, tx.PutOrphan(farm.Orphan{Host: h.ID, VM: "v1", Name: "web"}))
			}
		}
		return err
	})
	l.update(func(tx *store.Tx) error {
		return tx.PutGrant(farm.Grant{User: "wes", Role: farm.RoleOperator, Cell: "west"})
	})
	return l
}

// A list page by page is the list, whatever it chooses; and each host in it is as it is alone.
func TestHostsByPage(t *testing.T) {
	l := mixed(t)
	h, err := l.Hosts.Get(t.Context(), site, "node-02")
	if err != nil {
		t.Fatal(err)
	}
	l.running(ann, web("web"), h.Host)
	for _, who := range []farm.Identity{site, ann, {User: "wes"}} {
		for _, cell := range []string{"", "east", "none"} {
			for _, patterns := range [][]string{nil, {"node-[12]*", "id-node-07"}, {"cell:west"}} {
				for _, state := range []HostState{"", HostOpen, HostClosed, HostDraining, HostSilent, HostFenced} {
					f := HostFilter{Cell: cell, Patterns: patterns, State: state}
					all, err := l.Hosts.List(t.Context(), who, f)
					if err != nil {
						t.Fatal(err)
					}
					for _, f.Limit = range []int{1, 4, 1000} {
						if d := cmp.Diff(hostNames(all), hostNames(l.pages(who, f))); d != "" {
							t.Errorf("%v %+v: %s", who.User, f, d)
						}
					}
				}
			}
		}
	}
	all, err := l.Hosts.List(t.Context(), site, HostFilter{})
	if err != nil || len(all) != 41 {
		t.Fatal(len(all), err)
	}
	for _, v := range all {
		alone, err := l.Hosts.Get(t.Context(), site, v.Name)
		if d := cmp.Diff(alone, v, cmpopts.EquateEmpty()); d != "" || err != nil {
			t.Error(d, err)
		}
		if silent, err := l.Hosts.List(t.Context(), site,
			HostFilter{State: v.State, Patterns: []string{v.ID}}); err != nil ||
			!slices.Contains(hostNames(silent), v.Name) {
			t.Error(v.Name, v.State, hostNames(silent), err)
		}
	}
}

// pages are all pages of a list.
func (l *lab) pages(who farm.Identity, f HostFilter) (all []HostView) {
	l.t.Helper()
	for {
		page, err := l.Hosts.List(l.t.Context(), who, f)
		if err != nil || len(page) > f.Limit {
			l.t.Fatal(len(page), err)
		}
		if all = append(all, page...); len(page) < f.Limit {
			return all
		}
		f.After = page[len(page)-1].Name
	}
}

// Hosts that are looked up by name or ID are those that a look through all would choose.
func TestHostsAreChosen(t *testing.T) {
	l := mixed(t)
	for _, patterns := range [][]string{
		{"node-01"}, {"id-node-07"}, {"node-07", "id-node-07"}, {"node-03", "node-01", "node-03", "none"},
		{"id-node-02", "node-02"}, {"none"}, nil,
		{"node-0?"}, {"node-01", "node-1[0-3]"}, {"cell:west"}, {"cell:w*", "id-node-01"}, {"cell:node-01"},
		{`node-\01`}, {"*"},
	} {
		err := l.look(t.Context(), site, policy.CloseHost, func(c *call) error {
			all, err := c.HostsBrief("")
			if err != nil {
				return err
			}
			got, err := c.chosen(patterns)
			want := slices.DeleteFunc(all, func(h farm.Host) bool { return !matches(patterns, h) })
			if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
				t.Errorf("%q: %s", patterns, d)
			}
			return err
		})
		if err != nil {
			t.Error(patterns, err)
		}
	}
}

// The answer to an order says of each host what is said of it when it is asked for, and one that is refused for one
// host changes none.
func TestHostsAreAnswered(t *testing.T) {
	l := mixed(t)
	h, err := l.Hosts.Get(t.Context(), site, "node-02")
	if err != nil {
		t.Fatal(err)
	}
	l.running(ann, web("web"), h.Host)
	for _, patterns := range [][]string{{"node-02"}, {"node-0?", "id-node-18"}} {
		views, err := l.Hosts.Drain(t.Context(), site, patterns, DrainOrder{Reason: "kernel"})
		if err != nil || len(views) == 0 {
			t.Fatal(views, err)
		}
		for _, v := range views {
			now, err := l.Hosts.Get(t.Context(), site, v.Name)
			if d := cmp.Diff(now, v, cmpopts.EquateEmpty()); d != "" || err != nil || v.Drain.Reason != "kernel" ||
				v.CPUs != 16 {
				t.Errorf("%s: %v %s", v.Name, err, d)
			}
		}
	}
	before, err := l.Hosts.List(t.Context(), site, HostFilter{})
	if err != nil {
		t.Fatal(err)
	}
	l.update(func(tx *store.Tx) error { return tx.PutGrant(farm.Grant{User: "wes", Role: farm.RoleReader}) })
	if _, err := l.Hosts.Close(t.Context(), farm.Identity{User: "wes"}, []string{"node-0?"},
		"x"); code(err) != farm.CodeNoRole {
		t.Error(err)
	}
	after, err := l.Hosts.List(t.Context(), site, HostFilter{})
	if d := cmp.Diff(before, after); d != "" || err != nil {
		t.Error(d, err)
	}
}
