package slurmlab

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/e2e/batch/conform"
)

// TestTrixie holds on the newest Slurm what hangs on a release's own ways, beside the conformance cases.
func TestTrixie(t *testing.T) {
	if os.Getenv("GRANGE_BATCH") == "" {
		t.Skip("needs a Debian tree with another Slurm; `make test-batch` runs it")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	l, err := StartTrixie(ctx, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.end(t)
	t.Run("prolog", func(t *testing.T) { l.prologNotes(ctx, t) })
	t.Run("task epilogs", func(t *testing.T) { l.taskEpilogs(ctx, t) })
}

// prologNotes: what grange has found is noted for this slurmd, later jobs do without grange, and a change makes it look
// again.
func (l *Lab) prologNotes(ctx context.Context, t *testing.T) {
	noted := func() time.Time {
		t.Helper()
		if r := l.try(ctx, t, conform.Job{Metal: true, Script: "#!/bin/sh\n"}); r.State != conform.Done {
			t.Fatal(r)
		}
		notes, _ := filepath.Glob(l.path("checked/slurmd-*"))
		if len(notes) != 1 {
			t.Fatalf("notes: %v", notes)
		}
		name, err := os.ReadFile("/proc/" + strings.TrimPrefix(filepath.Base(notes[0]), "slurmd-") + "/comm")
		if err != nil || strings.TrimSpace(string(name)) != "slurmd" {
			t.Errorf("%s is not slurmd's: %s %v", notes[0], name, err)
		}
		info, err := os.Stat(notes[0])
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime()
	}
	noted() // what a test before us changed
	first := noted()
	if again := noted(); !again.Equal(first) {
		t.Errorf("grange looked again, at %v after %v, and nothing had changed", again, first)
	}
	if err := os.WriteFile(l.path("etc/plugstack.conf.d/grange.conf"), []byte(l.plugstack()), 0o644); err != nil {
		t.Fatal(err)
	}
	if again := noted(); !again.After(first) {
		t.Error("plugstack.conf has changed, and grange did not look")
	}
}
