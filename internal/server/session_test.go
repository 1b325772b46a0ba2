package server

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/accounts"
	"github.com/grange-project/grange/internal/store"
)

// signIn signs ann in, by a token made for that.
func (l *lab) signIn(o accounts.TokenOrder, b accounts.Browser) (farm.Session, string) {
	l.t.Helper()
	_, token, err := l.Accounts.CreateToken(l.t.Context(), inPerson, o)
	if err != nil {
		l.t.Fatal(err)
	}
	s, text, err := l.Accounts.SignIn(l.t.Context(), token, b)
	if err != nil {
		l.t.Fatal(err)
	}
	return s, text
}

func (l *lab) ended(what, text string) {
	l.t.Helper()
	if who, err := l.Accounts.IdentifySession(l.t.Context(), text); code(err) != farm.CodeNotKnown || who.User != "" {
		l.t.Errorf("%s: %+v, %v", what, who, err)
	}
}

func (l *lab) lives(what, text string) farm.Identity {
	l.t.Helper()
	who, err := l.Accounts.IdentifySession(l.t.Context(), text)
	if err != nil || who.User != "ann" {
		l.t.Errorf("%s: %+v, %v", what, who, err)
	}
	return who
}

// TestSession from the sign-in to the sign-out: it has what its token had, and its secret is kept nowhere.
func TestSession(t *testing.T) {
	l := newFarm(t)
	s, text := l.signIn(accounts.TokenOrder{Role: farm.RoleMember, Projects: []string{"alice"}},
		accounts.Browser{Client: "Firefox\x1b[2J" + strings.Repeat("x", 500), Address: "192.0.2.7"})
	want := farm.Identity{User: "ann", Means: "session", Source: s.ID, Role: farm.RoleMember,
		Projects: []string{"alice"}}
	if d := cmp.Diff(want, l.lives("signed in", text)); d != "" {
		t.Error(d)
	}
	if len(s.Client) > 200 || strings.ContainsRune(s.Client, '\x1b') {
		t.Errorf("client %q", s.Client)
	}
	if who, err := l.Accounts.IdentifyToken(t.Context(), text); err != nil || who.Source != s.ID {
		t.Errorf("shown as a token: %+v, %v", who, err)
	}
	if _, _, err := l.Accounts.SignIn(t.Context(), text, accounts.Browser{}); code(err) != farm.CodeNotKnown {
		t.Errorf("a session of a session: %v", err)
	}
	l.view(func(tx *store.Tx) error {
		kept, err := tx.Sessions("")
		rows, _ := json.Marshal(kept)
		entries, _ := tx.Entries("", "", 0, 100)
		log, _ := json.Marshal(entries)
		_, secret, _ := strings.Cut(strings.TrimPrefix(text, "grs_"), "_")
		if bytes.Contains(rows, []byte(secret)) || bytes.Contains(log, []byte(secret)) {
			t.Error("the secret is in the database")
		}
		if !bytes.Contains(log, []byte("session.start")) {
			t.Error("the audit log has no sign-in")
		}
		return err
	})
	for _, wrong := range []string{"", "grs_", text[:len(text)-1], text + "0", strings.ToUpper(text),
		"grs_" + s.ID + "_" + strings.Repeat("0", 64), strings.Replace(text, "grs_", "grt_", 1)} {
		l.ended("wrong: "+wrong, wrong)
	}
	if err := l.Accounts.SignOut(t.Context(), "grs_"+s.ID+"_"+strings.Repeat("0", 64)); err != nil {
		t.Error(err)
	}
	l.lives("after somebody else's sign-out", text)
	for range 2 {
		if err := l.Accounts.SignOut(t.Context(), text); err != nil {
			t.Error(err)
		}
	}
	l.ended("signed out", text)
}

// TestSessionLimits: a session ends when it is not used, and at its limit however much it is.
func TestSessionLimits(t *testing.T) {
	l := newFarm(t)
	_, idle := l.signIn(accounts.TokenOrder{}, accounts.Browser{})
	_, used := l.signIn(accounts.TokenOrder{}, accounts.Browser{})
	_, short := l.signIn(accounts.TokenOrder{Expires: l.clock().Add(time.Hour)}, accounts.Browser{})
	l.pass(time.Hour)
	l.ended("its token has expired", short)
	for hour := 2; hour < 24; hour++ {
		l.pass(time.Hour)
		l.lives("used each hour", used)
		if hour == 9 {
			l.ended("not used", idle)
		}
	}
	l.pass(time.Hour)
	l.ended("at its limit", used)
	if err := l.upkeep.prune(t.Context(), l.epoch()); err != nil {
		t.Error(err)
	}
	l.view(func(tx *store.Tx) error {
		left, err := tx.Sessions("")
		if len(left) > 0 {
			t.Errorf("%d sessions are kept", len(left))
		}
		return err
	})
}

// TestSessionsAreNew at each sign-in: what a browser showed before is no session any more.
func TestSessionsAreNew(t *testing.T) {
	l := newFarm(t)
	_, first := l.signIn(accounts.TokenOrder{}, accounts.Browser{})
	_, other := l.signIn(accounts.TokenOrder{}, accounts.Browser{})
	_, second := l.signIn(accounts.TokenOrder{}, accounts.Browser{Session: first})
	planted := "grs_0123456789abcdef_" + strings.Repeat("0", 64)
	_, third := l.signIn(accounts.TokenOrder{}, accounts.Browser{Session: planted})
	l.ended("the one before", first)
	l.ended("one that somebody planted", planted)
	for _, text := range []string{other, second, third} {
		l.lives("its own", text)
	}
}

// TestSessionsAreBounded: one user has so many, and those used longest ago end.
func TestSessionsAreBounded(t *testing.T) {
	l := newFarm(t)
	_, oldest := l.signIn(accounts.TokenOrder{}, accounts.Browser{})
	_, token, err := l.Accounts.CreateToken(t.Context(), inPerson, accounts.TokenOrder{})
	if err != nil {
		t.Fatal(err)
	}
	for range 60 {
		l.pass(time.Second)
		if _, _, err := l.Accounts.SignIn(t.Context(), token, accounts.Browser{}); err != nil {
			t.Fatal(err)
		}
	}
	l.ended("the oldest", oldest)
	if all, err := l.Accounts.Sessions(t.Context(), ann, ""); err != nil || len(all) != 50 || all[0].Hash != nil {
		t.Errorf("%d sessions, %v", len(all), err)
	}
}

// TestSessionsEnd with their user, with their token, and by whoever may end them.
func TestSessionsEnd(t *testing.T) {
	l := newFarm(t)
	s, text := l.signIn(accounts.TokenOrder{}, accounts.Browser{})
	if err := l.Accounts.EndSession(t.Context(), otto, s.ID); code(err) != accounts.CodeNoSession {
		t.Errorf("another's: %v", err)
	}
	if _, err := l.Accounts.Sessions(t.Context(), otto, "ann"); code(err) != farm.CodeNoRole {
		t.Errorf("another's list: %v", err)
	}
	if all, err := l.Accounts.Sessions(t.Context(), root, ""); err != nil || len(all) != 1 {
		t.Errorf("root's list: %v, %v", all, err)
	}
	if err := l.Accounts.EndSession(t.Context(), site, s.ID); err != nil {
		t.Error(err)
	}
	l.ended("ended by an admin", text)

	s, text = l.signIn(accounts.TokenOrder{}, accounts.Browser{})
	if err := l.Accounts.DeleteToken(t.Context(), ann, s.Source); err != nil {
		t.Fatal(err)
	}
	l.ended("its token was taken back", text)

	_, text = l.signIn(accounts.TokenOrder{}, accounts.Browser{})
	user := farm.User{Name: "ann", Subjects: []string{"CN=Ann,O=Grid"}}
	for _, disabled := range []bool{true, false} {
		user.Disabled = disabled
		if _, err := l.Accounts.PutUser(t.Context(), site, user, 0); err != nil {
			t.Fatal(err)
		}
		l.ended("its user was disabled", text)
	}
}

// TestTokensOfSessions: who signed in by a token that expires makes none that outlives it.
func TestTokensOfSessions(t *testing.T) {
	l := newFarm(t)
	_, text := l.signIn(accounts.TokenOrder{Expires: l.clock().Add(time.Hour)}, accounts.Browser{})
	who := l.lives("signed in", text)
	if _, _, err := l.Accounts.CreateToken(t.Context(), who, accounts.TokenOrder{}); code(err) != farm.CodeNoRole {
		t.Errorf("a token for ever: %v", err)
	}
	if _, _, err := l.Accounts.CreateToken(t.Context(), who,
		accounts.TokenOrder{Expires: l.clock().Add(time.Minute)}); err != nil {
		t.Error(err)
	}
}

// TestGrantsOfSessions count beside the user's own.
func TestGrantsOfSessions(t *testing.T) {
	l := newFarm(t)
	who := farm.Identity{User: "ann", Means: "session", Source: "s",
		Grants: []farm.Grant{{User: "ann", Role: farm.RoleOperator, Cell: "west"}}}
	access, err := l.Accounts.Explain(t.Context(), who, "", policy.CloseCell, "cell:west")
	if err != nil || !access.Allowed {
		t.Errorf("%+v, %v", access, err)
	}
	access, err = l.Accounts.Explain(t.Context(), ann, "", policy.CloseCell, "cell:west")
	if err != nil || access.Allowed {
		t.Errorf("without them: %+v, %v", access, err)
	}
}
