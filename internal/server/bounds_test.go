package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/accounts"
	"github.com/grange-project/grange/internal/server/hostlink"
	"github.com/grange-project/grange/internal/server/images"
	"github.com/grange-project/grange/internal/store"
)

// TestSignInsAreBounded: each sign-in is a change of its user, also by an identity token.
func TestSignInsAreBounded(t *testing.T) {
	l := newFarm(t)
	_, token, err := l.Accounts.CreateToken(t.Context(), inPerson, accounts.TokenOrder{})
	if err != nil {
		t.Fatal(err)
	}
	signIn := func() farm.Code {
		_, _, err := l.Accounts.SignIn(t.Context(), token, accounts.Browser{})
		return code(err)
	}
	if err := l.actions.Charge(inPerson, 4990); err != nil {
		t.Fatal(err)
	}
	made := 0
	for signIn() == "" {
		if made++; made > 20 {
			t.Fatal("no end")
		}
	}
	if got := signIn(); got != farm.CodeTooManyChanges {
		t.Errorf("refused with %q", got)
	}
	if n := len(l.entries("session.start", "done")); n != made {
		t.Errorf("%d sign-ins, %d entries", made, n)
	}
}

// TestManyVMsAreSeveralChanges: a request for many VMs counts for several changes of its user.
func TestManyVMsAreSeveralChanges(t *testing.T) {
	l := newLab(t)
	for count, changes := range map[int]int{1: 1, 9: 1, 100: 11, -1000: 1, 1 << 40: 11} {
		who := farm.Identity{User: fmt.Sprint("user-", count), Means: "token"}
		if _, err := l.VMs.Create(t.Context(), who, CreateVM{Project: "alice", Name: "a", Count: count}); err == nil {
			t.Fatal("made by a stranger")
		}
		if err := l.actions.Charge(who, 5000-changes-1); err != nil {
			t.Fatal(err)
		}
		// the bucket has room for the last one, and for no other
		if err := l.actions.Charge(who, 1); err != nil {
			t.Errorf("%d VMs: more than %d changes", count, changes)
		}
		if err := l.actions.Charge(who, 1); code(err) != farm.CodeTooManyChanges {
			t.Errorf("%d VMs: fewer than %d changes", count, changes)
		}
	}
}

// TestEntriesAreShort: whoever is refused chooses the name of the target, and how long it is.
func TestEntriesAreShort(t *testing.T) {
	l := newLab(t)
	long := strings.Repeat("x", 1<<20)
	for _, refused := range []error{
		l.Accounts.PutGrant(t.Context(), eve, farm.Grant{User: long, Role: farm.RoleAdmin}),
		l.Accounts.PutGrant(t.Context(), eve, farm.Grant{User: "eve", Role: farm.RoleAdmin, Project: long}),
		l.Accounts.DeleteUser(t.Context(), eve, long+"\n", 0),
	} {
		if code(refused) != farm.CodeNoRole {
			t.Fatal(code(refused))
		}
	}
	entries := append(l.entries("grant.write", "denied"), l.entries("user.write", "denied")...)
	if len(entries) != 3 {
		t.Fatalf("%d entries", len(entries))
	}
	for _, e := range entries {
		if n := len(e.Target) + len(e.Project) + len(e.Reason); n > 2000 {
			t.Errorf("an entry of %d bytes", n)
		}
	}
}

// TestJoinTokensAreBounded: a maker has a bounded number of join tokens; those that nobody can use make room.
func TestJoinTokensAreBounded(t *testing.T) {
	l := newLab(t)
	make := func(who farm.Identity) error {
		_, _, err := l.Links.CreateJoinToken(t.Context(), who, hostlink.JoinOrder{Cell: "east"})
		return err
	}
	for range 1000 {
		if err := make(site); err != nil {
			t.Fatal(err)
		}
	}
	if err := make(site); code(err) != farm.CodeQuota {
		t.Errorf("one more: %v", err)
	}
	if err := make(root); err != nil {
		t.Errorf("root: %v", err)
	}
	l.pass(2 * time.Hour) // they have expired
	if err := make(site); err != nil {
		t.Fatal(err)
	}
	all, err := l.Links.JoinTokens(t.Context(), root)
	if err != nil || len(all) != 2 {
		t.Errorf("%d tokens are left: %v", len(all), err)
	}
	if _, _, err := l.Links.CreateJoinToken(t.Context(), site, hostlink.JoinOrder{Cell: "east",
		Labels: map[string]string{"rack": strings.Repeat("x", 1000)}}); code(err) != hostlink.CodeJoinOrder {
		t.Errorf("a long label: %v", err)
	}
}

// TestImageOrdersAreBounded: hosts are at a bounded number of orders of one user, and as many of its orders are kept.
func TestImageOrdersAreBounded(t *testing.T) {
	l := newLab(t)
	l.machine("wn-1", "east")
	l.catalogued("debian", oldDebian, nil)
	order := func(who farm.Identity, f images.Choice) (string, error) {
		r, err := l.Images.Order(t.Context(), who, farm.ImageFetch, "debian", f)
		return r.ID, err
	}
	var first string
	for n := range 50 {
		id, err := order(site, images.Choice{})
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			first = id
		}
	}
	if _, err := order(site, images.Choice{}); code(err) != farm.CodeQuota {
		t.Errorf("one more: %v", err)
	}
	if _, err := order(root, images.Choice{}); err != nil {
		t.Errorf("root: %v", err)
	}
	l.update(func(tx *store.Tx) error {
		rows := store.ImagesOf(tx)
		all, err := rows.Orders()
		for n, o := range all {
			if o.Ended = l.clock().Add(time.Duration(n) * time.Second); o.ID == first {
				o.Ended = l.clock().Add(-time.Second)
			}
			if err == nil {
				err = rows.PutOrder(o)
			}
		}
		return err
	})
	if _, err := order(site, images.Choice{}); err != nil {
		t.Fatal(err)
	}
	l.view(func(tx *store.Tx) error {
		all, err := store.ImagesOf(tx).Orders()
		if err != nil || len(all) != 51 { // 50 of site, and root's
			t.Errorf("%d orders are kept: %v", len(all), err)
		}
		tasks, err := store.ImagesOf(tx).Tasks(first)
		if err != nil || len(tasks) != 0 {
			t.Errorf("the order that ended first has %d tasks: %v", len(tasks), err)
		}
		return nil
	})
	for what, f := range map[string]images.Choice{
		"many names":   {Hosts: make([]string, 1001)},
		"a long name":  {Hosts: []string{strings.Repeat("*x", 200)}},
		"a long label": {Labels: map[string]string{"rack": strings.Repeat("x", 1000)}},
	} {
		if _, err := order(otto, f); code(err) != images.CodeBadImage {
			t.Errorf("%s: %v", what, err)
		}
	}
}
