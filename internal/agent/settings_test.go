package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
)

func TestSettingsOfTheServer(t *testing.T) {
	state := t.TempDir()
	own := config.Agent{StateDir: state, BootTimeout: 3 * time.Minute, DefaultImage: "micro",
		Facts: map[string]string{"HS06": "200", "ROOM": "513"}}
	start := func() *Agent {
		a := claimAgent(state)
		a.cfg = own
		a.settings.load()
		return a
	}
	timeout, image := 300.0, "el9"
	want := own
	want.BootTimeout, want.DefaultImage, want.Facts = 5*time.Minute, "el9", map[string]string{"HS06": "357",
		"ROOM": "513"}
	a := start()
	a.settings.take(fleet.Settings{BootTimeout: &timeout, DefaultImage: &image,
		Facts: map[string]string{"HS06": "357"}})
	if d := cmp.Diff(want, a.config(), plainSets); d != "" {
		t.Errorf("taken over (-want +got):\n%s", d)
	}
	for _, bad := range []fleet.Settings{{BootTimeout: new(float64(1e9))}, {Facts: map[string]string{"A B": "x"}}} {
		a.settings.take(bad)
		if d := cmp.Diff(want, a.config(), plainSets); d != "" {
			t.Errorf("settings that make no sense (-want +got):\n%s", d)
		}
	}
	if d := cmp.Diff(want, start().config(), plainSets); d != "" {
		t.Errorf("after a start without the server (-want +got):\n%s", d)
	}
	a.settings.take(fleet.Settings{})
	if d := cmp.Diff(own, a.config(), plainSets); d != "" {
		t.Errorf("the server says nothing any more (-want +got):\n%s", d)
	}
	if d := cmp.Diff(own.Facts, map[string]string{"HS06": "200", "ROOM": "513"}); d != "" {
		t.Errorf("the host's own file has changed:\n%s", d)
	}
	if err := os.WriteFile(filepath.Join(state, settingsFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(own, start().config(), plainSets); d != "" {
		t.Errorf("a broken file (-want +got):\n%s", d)
	}
}

var plainSets = cmp.Comparer(farm.CPUSet.Equal)
