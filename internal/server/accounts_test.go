package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/accounts"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/server/apply"
	"github.com/grange-project/grange/internal/store"
)

// inPerson is ann with a certificate: a token makes no token that outlives it.
var inPerson = farm.Identity{User: "ann", Means: "certificate", Source: "CN=Ann,O=Grid"}

func TestTokenFromMakingToRevoking(t *testing.T) {
	l := newFarm(t)
	k, text, err := l.Accounts.CreateToken(t.Context(), inPerson,
		accounts.TokenOrder{Note: "laptop", Role: farm.RoleMember, Projects: []string{"alice"},
			Expires: l.clock().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(text, "grt_"+k.ID+"_") || len(text) < 80 || k.Hash != nil {
		t.Errorf("%q of %+v", text, k)
	}
	who, err := l.Accounts.IdentifyToken(t.Context(), text)
	if d := cmp.Diff(farm.Identity{User: "ann", Means: "token", Source: k.ID, Role: farm.RoleMember,
		Projects: []string{"alice"}}, who); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	l.view(func(tx *store.Tx) error { // nothing that was kept lets anybody in
		kept, err := tx.Token(k.ID)
		row, _ := json.Marshal(kept)
		entries, err2 := tx.Entries("", "", 0, 100)
		log, _ := json.Marshal(entries)
		secret := strings.TrimPrefix(text, "grt_"+k.ID+"_")
		if bytes.Contains(row, []byte(secret)) || bytes.Contains(log, []byte(secret)) {
			t.Error("the secret is in the database")
		}
		return errors.Join(err, err2)
	})
	for _, wrong := range []string{"", "grt_", text[:len(text)-1], text + "0", "x" + text, strings.ToUpper(text),
		"grt_" + k.ID + "_" + strings.Repeat("0", 64), "grt_0000000000000000_" + strings.Repeat("0", 64)} {
		if _, err := l.Accounts.IdentifyToken(t.Context(), wrong); code(err) != farm.CodeNotKnown {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	l.pass(time.Hour)
	if _, err := l.Accounts.IdentifyToken(t.Context(), text); code(err) != farm.CodeNotKnown ||
		!strings.Contains(err.Error(), "has expired") {
		t.Errorf("after its end: %v", err)
	}
	if err := l.Accounts.DeleteToken(t.Context(), otto, k.ID); code(err) != action.CodeNoToken {
		t.Errorf("another's: %v", err)
	}
	if err := l.Accounts.DeleteToken(t.Context(), ann, k.ID); err != nil {
		t.Error(err)
	}
	if _, err := l.Accounts.IdentifyToken(t.Context(), text); code(err) != farm.CodeNotKnown ||
		!strings.Contains(err.Error(), "does not know this token") {
		t.Errorf("taken back: %v", err)
	}
}

func TestTokensOfDisabledUsers(t *testing.T) {
	l := newFarm(t)
	_, text, err := l.Accounts.CreateToken(t.Context(), inPerson, accounts.TokenOrder{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Accounts.PutUser(t.Context(), site,
		farm.User{Name: "ann", Subjects: []string{"/O=Grid/CN=Ann"}, Disabled: true}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Accounts.IdentifyToken(t.Context(), text); code(err) != farm.CodeNotKnown ||
		!strings.Contains(err.Error(), "disabled") {
		t.Error(err)
	}
	if _, err := l.Accounts.IdentifySubject(t.Context(), "grid", "CN=Ann,O=Grid",
		true); code(err) != farm.CodeNotKnown ||
		!strings.Contains(err.Error(), "disabled") {
		t.Error(err)
	}
}

func TestTokensThatAreRefused(t *testing.T) {
	l := newFarm(t)
	short, text, err := l.Accounts.CreateToken(t.Context(), inPerson,
		accounts.TokenOrder{Expires: l.clock().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	byShort, err := l.Accounts.IdentifyToken(t.Context(), text)
	if err != nil || byShort.Source != short.ID {
		t.Fatal(byShort, err)
	}
	reader := farm.Identity{User: "ann", Means: "token", Source: short.ID, Role: farm.RoleReader}
	for name, c := range map[string]struct {
		who  farm.Identity
		o    accounts.TokenOrder
		code farm.Code
	}{
		"another's":            {inPerson, accounts.TokenOrder{User: "otto"}, farm.CodeNoRole},
		"an admin for another": {site, accounts.TokenOrder{User: "otto"}, ""},
		"root for a user":      {root, accounts.TokenOrder{User: "otto"}, ""},
		"root for itself": {farm.Identity{User: "root", Root: true}, accounts.TokenOrder{},
			accounts.CodeNoUser},
		"nobody":                    {site, accounts.TokenOrder{User: "zoe"}, accounts.CodeNoUser},
		"a project not there":       {inPerson, accounts.TokenOrder{Projects: []string{"cms"}}, action.CodeNoProject},
		"no role":                   {inPerson, accounts.TokenOrder{Role: "boss"}, accounts.CodeBadTokenOrder},
		"in the past":               {inPerson, accounts.TokenOrder{Expires: l.clock()}, accounts.CodeBadTokenOrder},
		"a note with a bell":        {inPerson, accounts.TokenOrder{Note: "\a"}, accounts.CodeBadTokenOrder},
		"a bound one makes another": {reader, accounts.TokenOrder{}, farm.CodeNoRole},
		"one outlives its maker": {byShort, accounts.TokenOrder{Expires: l.clock().Add(2 * time.Hour)},
			farm.CodeNoRole},
		"one never ends":        {byShort, accounts.TokenOrder{}, farm.CodeNoRole},
		"one ends as its maker": {byShort, accounts.TokenOrder{Expires: l.clock().Add(time.Hour)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, text, err := l.Accounts.CreateToken(t.Context(), c.who, c.o)
			if code(err) != c.code || err != nil && text != "" {
				t.Errorf("%v, want %q", err, c.code)
			}
		})
	}
}

func TestGrants(t *testing.T) {
	l := newFarm(t)
	fay := farm.Identity{User: "fay", Means: "certificate"}
	l.update(func(tx *store.Tx) error {
		return errors.Join(tx.PutUser(farm.User{Name: "fay"}),
			tx.PutGrant(farm.Grant{User: "fay", Role: farm.RoleAdmin, Project: "alice"}))
	})
	in := func(project string) farm.Grant {
		return farm.Grant{User: "otto", Role: farm.RoleMember, Project: project}
	}
	for _, c := range []struct {
		who  farm.Identity
		g    farm.Grant
		code farm.Code
	}{
		{fay, in("alice"), ""}, {fay, in("atlas"), farm.CodeNoRole}, {fay, in(""), farm.CodeNoRole},
		{ann, in("alice"), farm.CodeNoRole},
		{site, in("cms"), action.CodeNoProject}, {site, farm.Grant{User: "zoe", Role: farm.RoleReader},
			accounts.CodeNoUser},
		{site, farm.Grant{User: "ann", Role: farm.RoleReader, Cell: "north"}, farm.CodeNoSuchCell},
		{site, farm.Grant{User: "ann", Role: "boss"}, farm.CodeBadFarm},
	} {
		if err := l.Accounts.PutGrant(t.Context(), c.who, c.g); code(err) != c.code {
			t.Errorf("%s gives %v: %v, want %q", c.who.User, c.g, err, c.code)
		}
	}
	seen, err := l.Accounts.Grants(t.Context(), fay, "")
	if err != nil || len(seen) != 3 { // ann's and otto's in alice, and its own
		t.Errorf("%v, %v", seen, err)
	}
	if err := l.Accounts.DeleteGrant(t.Context(), fay, in("alice")); err != nil {
		t.Error(err)
	}
	if err := l.Accounts.DeleteGrant(t.Context(), fay, in("alice")); code(err) != accounts.CodeNoGrant {
		t.Error(err)
	}
}

func TestUsers(t *testing.T) {
	l := newFarm(t)
	u, err := l.Accounts.PutUser(t.Context(), site,
		farm.User{Name: "gus@cern.ch", Subjects: []string{"/DC=ch/DC=cern/CN=Gus", "CN=Gus,DC=cern,DC=ch"}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	who, err := l.Accounts.IdentifySubject(t.Context(), "grid", "CN=Gus,DC=cern,DC=ch", true)
	if err != nil || who.User != "gus@cern.ch" || len(u.Subjects) != 1 {
		t.Errorf("%+v, %+v, %v", who, u, err)
	}
	if _, err := l.Accounts.PutUser(t.Context(), site, farm.User{Name: "gus@cern.ch"},
		u.Revision-1); code(err) != action.CodeChanged {
		t.Error(err)
	}
	if _, err := l.Accounts.PutUser(t.Context(), ann, farm.User{Name: "ann"}, 0); code(err) != farm.CodeNoRole {
		t.Error(err)
	}
	if _, err := l.Accounts.PutUser(t.Context(), site, farm.User{Name: "-"}, 0); code(err) != farm.CodeBadName {
		t.Error(err)
	}
	if mine, err := l.Accounts.Users(t.Context(), ann); err != nil || len(mine) != 1 || mine[0].Name != "ann" {
		t.Errorf("%v, %v", mine, err)
	}
	// With several authorities, one of them says who ann is.
	if _, err := l.Accounts.IdentifySubject(t.Context(), "weak", "CN=Ann,O=Grid",
		false); code(err) != accounts.CodeUnboundCert {
		t.Error(err)
	}
	if _, err := l.Accounts.PutUser(t.Context(), site, farm.User{Name: "ann",
		Subjects: []string{"grid:/O=Grid/CN=Ann"}},
		0); err != nil {
		t.Fatal(err)
	}
	if who, err := l.Accounts.IdentifySubject(t.Context(), "grid", "CN=Ann,O=Grid", false); err != nil ||
		who.User != "ann" {
		t.Errorf("%+v, %v", who, err)
	}
	for _, only := range []bool{true, false} {
		if _, err := l.Accounts.IdentifySubject(t.Context(), "weak", "CN=Ann,O=Grid",
			only); code(err) != farm.CodeNotKnown {
			t.Errorf("of another authority: %v", err)
		}
	}
	if err := l.Accounts.DeleteUser(t.Context(), site, "ann", 0); err != nil {
		t.Fatal(err)
	}
	if err := l.Accounts.DeleteUser(t.Context(), site, "ann", 0); code(err) != accounts.CodeNoUser {
		t.Error(err)
	}
	if _, err := l.Accounts.IdentifySubject(t.Context(), "grid", "CN=Ann,O=Grid",
		true); code(err) != farm.CodeNotKnown {
		t.Error(err)
	}
}

func TestExplain(t *testing.T) {
	l := newFarm(t)
	vm := l.running(otto, CreateVM{Project: "atlas", Name: "web", Image: "micro", Shape: "small", NewKey: true},
		l.host("h1", "west"))
	for _, c := range []struct {
		who     farm.Identity
		user    string
		action  policy.Action
		target  string
		allowed bool
		says    string
		code    farm.Code
	}{
		{who: otto, action: policy.DeleteVM, target: "vm:atlas/web", allowed: true,
			says: "role operator in project atlas"},
		{who: ann, action: policy.DeleteVM, target: "vm:atlas/web", says: "ann has none there"},
		{who: site, user: "ann", action: policy.CreateVM, target: "project:alice", allowed: true,
			says: "role member in project alice"},
		{who: site, user: "ann", action: policy.DrainHost, target: "host:h1", says: "in cell west or everywhere"},
		// nothing is told of the host
		{who: ann, action: policy.DrainHost, target: "host:h1", says: "needs role operator everywhere"},
		{who: ann, action: policy.MakeToken, target: "user:ann", allowed: true, says: "own"},
		{who: root, action: policy.ApplyFarm, allowed: true, says: "root"},
		{who: ann, user: "otto", action: policy.CreateVM, target: "project:atlas", code: farm.CodeNoRole},
		{who: site, user: "zoe", action: policy.CreateVM, target: "project:atlas", code: accounts.CodeNoUser},
		{who: site, action: "vm.steal", code: accounts.CodeNoAction},
		{who: site, action: policy.CreateVM, target: "atlas", code: farm.CodeUsage},
	} {
		got, err := l.Accounts.Explain(t.Context(), c.who, c.user, c.action, c.target)
		if code(err) != c.code || got.Allowed != c.allowed || !strings.Contains(got.Reason(), c.says) {
			t.Errorf("%s on %s for %s%s: %v %q, %v", c.action, c.target, c.who.User, c.user, got.Allowed, got.Why, err)
		}
	}
	if vm.Project != "atlas" {
		t.Error(vm)
	}
}

// Nothing of a deleted user is another one's who is called the same later.
func TestNameOfADeletedUser(t *testing.T) {
	l := newFarm(t)
	vm := l.running(otto, CreateVM{Project: "atlas", Name: "web", Image: "micro", Shape: "small", NewKey: true},
		l.host("h1", "west"))
	if err := l.Accounts.DeleteUser(t.Context(), site, "otto", 0); code(err) != accounts.CodeUserHasVMs {
		t.Errorf("with a VM: %v", err)
	}
	l.update(func(tx *store.Tx) error {
		return errors.Join(tx.DeleteVM(vm.ID), tx.PutJoinToken(farm.JoinToken{ID: "j", By: "otto", Cell: "west"}),
			tx.PutJoinToken(farm.JoinToken{ID: "k", By: "ann", Cell: "west"}),
			tx.PutAnswer("otto", "key", []byte("x"), []byte("[]"), l.clock()))
	})
	if err := l.Accounts.DeleteUser(t.Context(), site, "otto", 0); err != nil {
		t.Fatal(err)
	}
	l.view(func(tx *store.Tx) error {
		left, err := tx.JoinTokens()
		if len(left) != 1 || left[0].ID != "k" {
			t.Errorf("join tokens %v, %v", left, err)
		}
		return err
	})
	l.view(func(tx *store.Tx) error {
		if _, _, err := tx.Answer("otto", "key"); !action.Missing(err) {
			t.Errorf("the answer to an earlier request of otto's: %v", err)
		}
		return nil
	})
}

// TestNamesOfUsers: nobody is called what the server calls itself, and no name is a path, a line or a pattern; by
// either way to make a user.
func TestNamesOfUsers(t *testing.T) {
	l := newFarm(t)
	for _, name := range []string{"", " ", "root", "grange", ".", "..", "../x", "a/b", "/", "a\\b", "a\nb", "a\x00b",
		"a\x1b[2J", "a\tb", "a b", "-x", "*", "a:b", "a,b", "ä", "a\u202eb", strings.Repeat("a", 65)} {
		if _, err := l.Accounts.PutUser(t.Context(), site, farm.User{Name: name}, 0); !farm.IsKind(err, farm.Invalid) {
			t.Errorf("%q can be made: %v", name, err)
		}
		if _, err := l.Farm.Apply(t.Context(), site, farm.Farm{Users: []farm.User{{Name: name}}},
			apply.ApplyOrder{}); !farm.IsKind(err, farm.Invalid) {
			t.Errorf("%q can be applied: %v", name, err)
		}
	}
	for _, name := range []string{"ann", "a.b_c-d@cern.ch", "Roots", "0"} {
		if _, err := l.Accounts.PutUser(t.Context(), site, farm.User{Name: name}, 0); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := l.Farm.Apply(t.Context(), site, farm.Farm{Users: []farm.User{{Name: name + "2"}}},
			apply.ApplyOrder{}); err != nil {
			t.Errorf("%q, applied: %v", name, err)
		}
	}
}

// TestTokensAreBounded: a user has a bounded number of tokens.
func TestTokensAreBounded(t *testing.T) {
	l := newFarm(t)
	for range 100 {
		if _, _, err := l.Accounts.CreateToken(t.Context(), inPerson, accounts.TokenOrder{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := l.Accounts.CreateToken(t.Context(), inPerson, accounts.TokenOrder{}); code(err) !=
		accounts.CodeBadTokenOrder {
		t.Error(err)
	}
}
