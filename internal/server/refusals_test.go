package server

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// TestRefusalsAreBounded: of a caller who is refused without end the audit log has the first refusals, and then one a
// minute with a count. Other callers have their own.
func TestRefusalsAreBounded(t *testing.T) {
	l := newLab(t)
	refused := func(who farm.Identity, times int) {
		for range times {
			if err := l.Accounts.DeleteUser(t.Context(), who, "nobody", 0); code(err) != farm.CodeNoRole {
				t.Fatal(err)
			}
		}
	}
	refused(eve, 1000)
	refused(ann, 1)
	if n := len(l.entries("user.write", "denied")); n != 21 {
		t.Errorf("%d entries", n)
	}
	l.pass(time.Minute)
	refused(eve, 10)
	e := l.entries("user.write", "denied")
	if len(e) != 22 || !strings.Contains(e[0].Reason, "and 980 refusals before") {
		t.Errorf("%d entries, %+v", len(e), e[0])
	}
}

// TestChangesAreBounded: a user makes many changes at once, and then one a second. Other users have their own bound,
// and root has none.
func TestChangesAreBounded(t *testing.T) {
	l := newLab(t)
	change := func(who farm.Identity) farm.Code {
		return code(l.Accounts.DeleteUser(t.Context(), who, "nobody", 0))
	}
	made := 0
	for change(eve) != farm.CodeTooManyChanges {
		if made++; made > 5000 {
			t.Fatal("no end")
		}
	}
	if made != 5000 {
		t.Errorf("%d changes", made)
	}
	if got := change(ann); got != farm.CodeNoRole {
		t.Errorf("another user: %s", got)
	}
	for range 5100 {
		if got := change(root); got == farm.CodeTooManyChanges {
			t.Fatal("root is bounded")
		}
	}
	if _, err := l.Accounts.Users(t.Context(), eve); code(err) == farm.CodeTooManyChanges {
		t.Errorf("a read: %v", err)
	}
	l.pass(2 * time.Second)
	for _, want := range []farm.Code{farm.CodeNoRole, farm.CodeNoRole, farm.CodeTooManyChanges} {
		if got := change(eve); got != want {
			t.Errorf("after two seconds: %s, not %s", got, want)
		}
	}
}

// TestHostAmongManyEntries: whatever is done in projects, it is known whether a host was changed.
func TestHostAmongManyEntries(t *testing.T) {
	l := newLab(t)
	l.host("h1", "east")
	h, err := l.Hosts.Get(t.Context(), site, "h1")
	if err != nil {
		t.Fatal(err)
	}
	l.update(func(tx *store.Tx) error {
		var errs []error
		for range 3 * action.LookBack {
			errs = append(errs, tx.Audit(farm.Entry{Time: l.clock(), Who: "ann", Project: "alice",
				Outcome: action.Done}))
		}
		return errors.Join(append(errs, tx.SetHostFacts(h.ID, farm.Facts{Version: "another"}))...)
	})
	if _, err := l.Hosts.Label(t.Context(), site, []string{"h1"}, LabelOrder{Set: map[string]string{"rack": "1"},
		IfRevision: h.Revision}); err != nil {
		t.Error(err)
	}
}
