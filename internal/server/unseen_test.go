package server

import (
	"cmp"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/server/hostlink"
	"github.com/grange-project/grange/internal/store"
)

// told is all that an error says to its caller.
func told(err error) string {
	e, ok := errors.AsType[*farm.Error](err)
	if !ok {
		return ""
	}
	return string(e.Code) + ": " + e.Message + " (" + e.Hint + ")"
}

// TestHolderOfAnAddress: only a caller who may see a VM is told that it has the address that the caller asks for.
func TestHolderOfAnAddress(t *testing.T) {
	l := newLab(t)
	l.update(func(tx *store.Tx) error {
		return cmp.Or(tx.PutProject(farm.Project{Name: "bob"}),
			tx.PutGrant(farm.Grant{User: "otto", Role: farm.RoleMember, Project: "bob"}))
	})
	address := netip.MustParseAddr("10.0.0.11")
	secret := web("merger-db")
	secret.Network, secret.Address = "lan", address
	l.create(ann, secret)
	for _, c := range []struct {
		who     farm.Identity
		project string
		names   bool
	}{{otto, "bob", false}, {ann, "alice", true}, {site, "bob", true}, {root, "bob", true}} {
		r := web("mine")
		r.Project, r.Network, r.Address = c.project, "lan", address
		_, err := l.VMs.Create(t.Context(), c.who, r)
		if got := told(err); code(err) != CodeAddressTaken || strings.Contains(got, "alice/merger-db") != c.names {
			t.Errorf("%+v in %s: %s", c.who, c.project, got)
		}
	}
	for _, e := range l.entries("vm.create", "failed") {
		if e.Project == "bob" && strings.Contains(e.Reason, "merger-db") {
			t.Errorf("operators of bob read it in the audit log: %+v", e)
		}
	}
}

// TestUnseenIsAbsent: a caller gets the same answer for a VM or a host that it may not see and for one that is not
// there, whatever it asks for.
func TestUnseenIsAbsent(t *testing.T) {
	l := newLab(t)
	east, west := l.host("h1", "east"), l.host("h2", "west")
	v := l.running(ann, web("web"), east)
	wes := farm.Identity{User: "wes", Means: "token"}
	l.update(func(tx *store.Tx) error {
		return cmp.Or(tx.PutUser(farm.User{Name: "wes"}),
			tx.PutGrant(farm.Grant{User: "wes", Role: farm.RoleAdmin, Cell: "west"}))
	})
	vm := func(do func(who farm.Identity, ref string) error) [][2]string {
		var all [][2]string
		for _, who := range []farm.Identity{otto, eve, wes} {
			all = append(all, [2]string{told(do(who, "alice/web")), strings.ReplaceAll(told(do(who, "alice/wob")), "wob",
				"web")}, [2]string{told(do(who, v.ID)), strings.ReplaceAll(told(do(who, "0"+v.ID)), "0"+v.ID, v.ID)})
		}
		return all
	}
	host := func(do func(who farm.Identity, ref string) error) [][2]string {
		var all [][2]string
		for _, who := range []farm.Identity{ann, eve, wes} {
			all = append(all, [2]string{told(do(who, "h1")), strings.ReplaceAll(told(do(who, "h9")), "h9", "h1")})
		}
		return all
	}
	for name, answers := range map[string][][2]string{
		"show a VM": vm(func(who farm.Identity, ref string) error {
			_, err := l.VMs.Get(t.Context(), who, ref)
			return err
		}),
		"stop a VM": vm(func(who farm.Identity, ref string) error {
			_, err := l.VMs.Stop(t.Context(), who, ref, 0)
			return err
		}),
		"why": vm(func(who farm.Identity, ref string) error {
			_, err := l.WhyOf(t.Context(), who, ref)
			return err
		}),
		"show a host": host(func(who farm.Identity, ref string) error {
			_, err := l.Hosts.Get(t.Context(), who, ref)
			return err
		}),
		"close hosts": host(func(who farm.Identity, ref string) error {
			_, err := l.Hosts.Close(t.Context(), who, []string{ref}, "test")
			return err
		}),
		"forget a host": host(func(who farm.Identity, ref string) error {
			return l.Hosts.Forget(t.Context(), who, ref, 0)
		}),
	} {
		for i, a := range answers {
			if a[0] == "" || a[0] != a[1] || strings.Contains(a[0], "east") {
				t.Errorf("%s, %d:\n%s\n%s", name, i, a[0], a[1])
			}
		}
	}
	if h, err := l.Hosts.Get(t.Context(), wes, "h2"); err != nil || h.ID != west.ID {
		t.Error(h.Name, err)
	}
	_, _, err := l.Links.CreateJoinToken(t.Context(), wes, hostlink.JoinOrder{Cell: "west", Name: "h1"})
	if got := told(err); code(err) != farm.CodeNoRole || strings.Contains(got, "east") {
		t.Error(got)
	}
}

// TestUnseenHostOfList: a list of a host's VMs tells a caller who may not see the host nothing of it.
func TestUnseenHostOfList(t *testing.T) {
	l := newLab(t)
	h := l.host("h1", "east")
	l.host("h2", "east")
	v := l.running(ann, web("web"), h)
	for _, who := range []farm.Identity{ann, otto, eve} {
		for _, name := range []string{"h2", "id-h2", "h9"} {
			if list, err := l.VMs.List(t.Context(), who, VMFilter{Host: name}); err != nil || len(list.Items) != 0 {
				t.Errorf("%s, VMs of %s: %+v, %v", who.User, name, list.Items, err)
			}
		}
	}
	list, err := l.VMs.List(t.Context(), ann, VMFilter{Host: "h1"})
	if err != nil || len(list.Items) != 1 || list.Items[0].ID != v.ID {
		t.Errorf("an owner does not find its VM by its host: %+v, %v", list, err)
	}
	if _, err := l.VMs.List(t.Context(), root, VMFilter{Host: "h9"}); code(err) != action.CodeNoHost {
		t.Error("root does not hear that a host is not there:", err)
	}
}

// TestMoveToUnseenHost: an operator of one cell moves no VM to a host of another one, and does not learn whether that
// host is there.
func TestMoveToUnseenHost(t *testing.T) {
	m := newMovers(t)
	m.host("o1", "east")
	m.update(func(tx *store.Tx) error {
		return tx.PutGrant(farm.Grant{User: "wes", Role: farm.RoleOperator, Cell: "west"})
	})
	var answers []string
	for _, to := range []string{"o1", "o9"} {
		_, err := m.VMs.Move(t.Context(), farm.Identity{User: "wes", Means: "token"}, m.vm.ID, 0, to)
		answers = append(answers, strings.ReplaceAll(told(err), to, "?"))
		if code(err) != farm.CodeNoRole {
			t.Errorf("to %s: %v", to, err)
		}
	}
	if answers[0] != answers[1] {
		t.Error(answers)
	}
}
