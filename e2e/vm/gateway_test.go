package vm

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/filebench"
	"github.com/grange-project/grange/internal/filebench/load"
)

// boundBy is how a directory comes into a VM by a bind that names no gateway.
func boundBy(t *testing.T, dir string) api.BoundBy {
	t.Helper()
	cmd := asOwner(host.Exec(ctx(t), "--json", "--bind", dir+":/data:gateway=auto", "--", "true"))
	var events bytes.Buffer
	cmd.Stderr = &events
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, events.String())
	}
	for decoder := json.NewDecoder(&events); ; {
		var e api.JobEvent
		if err := decoder.Decode(&e); err != nil {
			t.Fatal("no event says how the directory came: ", err)
		}
		if e.VM != nil && len(e.VM.Binds) == 1 {
			return e.VM.Binds[0]
		}
	}
}

// TestGatewayAuto: a bind that leaves the choice has virtiofs, and what was measured changes that.
func TestGatewayAuto(t *testing.T) {
	needVirtiofsd(t)
	dir := ownDir(t)
	b := boundBy(t, dir)
	if b.Gateway != string(farm.Virtiofs) || !strings.Contains(b.Why, "the first of virtiofs, fuse") ||
		b.FileSystem == nil {
		t.Fatalf("%+v", b)
	}
	m := filebench.Measurement{FileSystem: b.FileSystem.Type, Time: time.Now()}
	for _, phase := range load.Phases {
		for g, rate := range map[farm.Gateway]float64{farm.FUSE: 3, farm.Virtiofs: 1} {
			m.Results = append(m.Results, filebench.Median{Result: filebench.Result{Gateway: string(g), Phase: phase,
				Rate: rate}})
		}
	}
	text, err := json.Marshal(filebench.Kept{Version: 1,
		FileSystems: map[string]filebench.Measurement{m.FileSystem: m}})
	if err != nil {
		t.Fatal(err)
	}
	file := filebench.KeptFile(filepath.Join(host.Dir, "state"))
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(file)
	if b := boundBy(t, dir); b.Gateway != string(farm.FUSE) || !strings.Contains(b.Why, "3.0 times virtiofs") {
		t.Errorf("%+v", b)
	}
}

// TestGatewayBench: root has each gateway measured as the directory's owner; the result is kept, and the directory is
// as it was.
func TestGatewayBench(t *testing.T) {
	needVirtiofsd(t)
	dir, state := ownDir(t), filepath.Join(host.Dir, "state")
	const nobody = 65534 // who has a name; the owner has none
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(filebench.KeptFile(state))
	r := run(t, host.Grange(ctx(t), "gateway", "bench", "--config", host.Config, "--dir", dir, "--size", "1M", "--files",
		"5", "--rounds", "1"), "")
	if r.code != 0 || !strings.Contains(r.out, "GATEWAY") {
		t.Fatalf("status %d: %s%s", r.code, r.out, r.errors)
	}
	k, err := filebench.ReadKept(state)
	if err != nil || len(k.FileSystems) != 1 {
		t.Fatalf("%+v, %v", k, err)
	}
	for _, m := range k.FileSystems {
		if s := m.Scores(); s[farm.Virtiofs] == 0 || s[farm.FUSE] == 0 {
			t.Errorf("%v of %+v", s, m)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}
