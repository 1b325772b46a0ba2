package filesystems

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
)

// draining is a site whose VMs end one by one, and whose agent is away for a moment.
type draining struct {
	asked []api.FileSystemDrain
	left  []string
	away  bool
}

func (s *draining) drain(_ context.Context, d api.FileSystemDrain) (progress, error) {
	s.asked = append(s.asked, d)
	return progress{s.left, d}, nil
}

func (s *draining) look(context.Context, string) (progress, error) {
	if s.away = !s.away; s.away {
		return progress{}, api.ErrNoAgent
	}
	s.left = s.left[1:]
	return progress{s.left, api.FileSystemDrain{Name: "work"}}, nil
}

func TestDrainWaits(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	f := drainFlags{deadline: "2h", reason: "new disks", yes: true}
	d, err := drainOf("work", f, now)
	if err != nil || !d.Deadline.Equal(now.Add(2*time.Hour)) || d.Until != nil || d.Reason != "new disks" {
		t.Fatalf("%+v, %v", d, err)
	}
	if _, err := drainOf("work", drainFlags{until: "yesterday"}, now); !farm.IsCode(err, farm.CodeUsage) {
		t.Errorf("%v", err)
	}
	var out, told bytes.Buffer
	a := &app.App{Out: &out, Err: &told}
	s := &draining{left: []string{"vm-1"}}
	if err := drainFrom(t.Context(), a, s, d, f); err != nil || len(s.asked) != 1 ||
		told.String() != "left: vm-1\n" || out.String() != "no VM has directories of work\n" {
		t.Errorf("%v, %q, %q", err, told.String(), out.String())
	}
	out.Reset()
	f.noWait, a.JSON = true, true
	s = &draining{left: []string{"vm-1"}}
	var is api.FileSystemDrain
	err = drainFrom(t.Context(), a, s, d, f)
	if json.Unmarshal(out.Bytes(), &is) != nil || err != nil || is.Name != "work" || len(s.left) != 1 {
		t.Errorf("without waiting: %v, %s", err, out.String())
	}
	f.yes = false
	s = &draining{}
	if err := drainFrom(t.Context(), a, s, d, f); !farm.IsCode(err, app.CodeNeedsYes) || len(s.asked) != 0 {
		t.Errorf("without a yes: %v", err)
	}
}

func TestProgress(t *testing.T) {
	local := ofHost(api.FileSystemDrain{VMs: []api.FileSystemUser{{Name: "vm-1", User: "ann"},
		{Name: "vm-2", User: "bob", Batch: "slurm/7"}}})
	all := ofFleet(fleet.FileSystem{Hosts: []fleet.FileSystemHost{{Host: "a", Drained: true},
		{Host: "b", VMs: 2, Drained: true}, {Host: "c"}}})
	got := strings.Join(append(local.left, all.left...), "\n")
	if d := cmp.Diff("vm-1 of ann\nvm-2 of bob (slurm/7)\nb (2 VMs)\nc (has not answered)", got); d != "" {
		t.Error(d)
	}
}

func TestFleetLine(t *testing.T) {
	since := time.Date(2026, 11, 26, 12, 0, 0, 0, time.Local)
	for want, f := range map[string]fleet.FileSystem{
		"home, 1, -, 1 VM behind 1 client, -, -": {Name: "home", Clients: 1, VMs: 1},
		"work, 3, 2, exceeded, 9 VMs behind 3 clients, since 2026-11-26 12:00, x": {Name: "work", Clients: 3, Budget: 2,
			VMs: 9, Note: "x", Drain: &api.FileSystemDrain{Since: since}},
	} {
		var words []string
		for _, w := range fleetLine(f) {
			words = append(words, strings.TrimSpace(strings.Trim(jsonText(w), `"`)))
		}
		if got := strings.Join(words, ", "); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
}

func jsonText(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}
