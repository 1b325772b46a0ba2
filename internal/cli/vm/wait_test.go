package vm

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
)

// A VM that a host would not have is failed until the server has placed it elsewhere. One that stays so has failed.
func TestWaitDoubtsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &waiting{a: &app.App{Err: io.Discard}, now: map[string]fleet.VM{}, said: map[string]string{},
			left: map[string]bool{"v": true}, doubt: map[string]time.Time{}}
		vm := func(state string) fleet.VM { return fleet.VM{ID: "v", State: state, Power: "on", Pending: true} }
		for i, state := range []string{"placing", "failed", "placing", "failed", "failed"} {
			if err := w.see(vm(state)); err != nil {
				t.Fatalf("%d, %s: %v", i, state, err)
			}
			time.Sleep(doubtful / 2)
		}
		time.Sleep(doubtful)
		if err := w.see(vm("failed")); !farm.IsCode(err, CodeVMFailed) {
			t.Errorf("still failed: %v", err)
		}
	})
}

// A watch for VMs of one project is for that project; of several it is for all.
func TestWaitNamesItsProject(t *testing.T) {
	w := &waiting{now: map[string]fleet.VM{"a": {Project: "atlas"}, "b": {Project: "atlas"}, "c": {Project: "cms"}},
		left: map[string]bool{}}
	for _, c := range []struct{ also, want string }{{"a", "atlas"}, {"b", "atlas"}, {"c", ""}} {
		w.left[c.also] = true
		if got := w.project(); got != c.want {
			t.Errorf("with %s: %q", c.also, got)
		}
	}
}
