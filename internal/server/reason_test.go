package server

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// TestReasonQuotesNobodysConsole shows what a reason quotes of a VM's console to those who may read that console, and
// to others of the project the reason alone; of hosts of earlier releases, too, which quote the guest in the first
// line.
func TestReasonQuotesNobodysConsole(t *testing.T) {
	const secret = "password: hunter2"
	for name, reason := range map[string]string{
		"now": "vm-ended: the VM ended in a kernel panic; " + farm.ConsoleFollows + "\n  Kernel panic - " + secret +
			"\n  " + secret,
		"earlier": "vm-ended: the VM ended in a kernel panic (" + secret + "); the end of its console:\n  " + secret,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.update(func(tx *store.Tx) error {
				return tx.PutGrant(farm.Grant{User: "rita", Role: farm.RoleReader, Project: "alice"})
			})
			l.update(func(tx *store.Tx) error {
				return tx.PutGrant(farm.Grant{User: "mia", Role: farm.RoleMember, Project: "alice"})
			})
			vm := l.running(ann, CreateVM{Project: "alice", Image: "micro", Shape: "small", Name: "a"},
				l.host("h1", "east"))
			l.update(func(tx *store.Tx) error {
				return tx.SetVMObserved(vm.ID, farm.Observed{State: farm.VMFailed, Reason: reason, Since: l.clock()})
			})
			for _, who := range []farm.Identity{ann, site, root} {
				for way, text := range l.shownTo(who, vm) {
					if !strings.Contains(text, "hunter2") {
						t.Errorf("%s, who may read the console, does not see it: %s: %s", who.User, way, text)
					}
				}
			}
			for _, user := range []string{"rita", "mia"} {
				for way, text := range l.shownTo(farm.Identity{User: user, Means: "token"}, vm) {
					if strings.Contains(text, "hunter2") ||
						!strings.Contains(text, "vm-ended: the VM ended in a kernel panic\"") {
						t.Errorf("%s sees by %s: %s", user, way, text)
					}
				}
			}
		})
	}
}

// shownTo is a VM as somebody sees it, by each way there is.
func (l *lab) shownTo(who farm.Identity, vm VMView) map[string]string {
	l.t.Helper()
	text := func(v any, err error) string {
		l.t.Helper()
		if err != nil {
			l.t.Fatal(err)
		}
		out, err := json.Marshal(v)
		if err != nil {
			l.t.Fatal(err)
		}
		return string(out)
	}
	out := map[string]string{}
	v, err := l.VMs.Get(l.t.Context(), who, vm.ID)
	out["show"] = text(v, err)
	list, err := l.VMs.List(l.t.Context(), who, VMFilter{})
	out["list"] = text(list, err)
	changes, _, err := l.Watch(l.t.Context(), who, WatchFilter{Kinds: []string{"vm"}}, 0)
	out["watch"] = text(changes, err)
	return out
}

// TestRefusalQuotesNoConsole: why a VM is placed elsewhere is in its notice, which all see who see the VM.
func TestRefusalQuotesNoConsole(t *testing.T) {
	for reason, want := range map[string]string{
		"guest-silent: the VM ended before its guest came up in a kernel panic (x); the end of its console:\n  x": "guest-silent: the VM ended before its guest came up in a kernel panic",
		"vm-ended: it ended; its console is empty":                                                                "vm-ended: it ended; its console is empty",
		"vm-ended: it ended; " + farm.ConsoleFollows +
			"\n  x": "vm-ended: it ended",
		"no-room: it lacks room": "no-room: it lacks room", "": "", "\nx": "",
	} {
		if got := (farm.Observed{Reason: reason}).Brief(); got != want {
			t.Errorf("Brief of %q = %q, want %q", reason, got, want)
		}
	}
}
