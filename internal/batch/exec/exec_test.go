package exec

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/batchtest"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// install copies the example to where no other may change it, as packages install programs.
func install(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../packaging/batch-program.py")
	if err != nil {
		t.Fatal(err)
	}
	return write(t, string(text), 0o755)
}

func write(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "program")
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestExample runs the contract through the example program: it is a model for others, and must be a good one.
func TestExample(t *testing.T) {
	o := Options{Program: install(t), Env: []string{"STATE=" + filepath.Join(t.TempDir(), "state")}}
	ask := func(t *testing.T, request map[string]any) Answer {
		t.Helper()
		request["protocol"] = Protocol
		text, _ := json.Marshal(request)
		out, err := program.Start(context.WithoutCancel(t.Context()),
			program.Call{Path: o.Program, Env: o.Env, Input: text})
		var a Answer
		if err != nil || json.Unmarshal(out, &a) != nil || a.Error != nil {
			t.Fatalf("%v: %s, %v", request, out, err)
		}
		return a
	}
	set := func(t *testing.T, host string, to map[string]any) {
		ask(t, map[string]any{"verb": "test_set", "host": host, "set": to})
	}
	for _, host := range []string{"n1", "n2"} {
		set(t, host, nil)
	}
	submit := func(t *testing.T, host string, j batchtest.Job) string {
		job := map[string]any{"host": host, "user": "eva", "account": "atlas", "queue": "main", "cpus": max(j.CPUs, 1),
			"image": j.Image, "shape": j.Shape, "memory": int64(j.Memory), "seconds": j.Limit.Seconds()}
		return ask(t, map[string]any{"verb": "test_submit", "submit": job}).Lookup.ID
	}
	end := func(t *testing.T, id, outcome string, code int) {
		ask(t, map[string]any{"verb": "test_end", "job": id, "outcome": outcome, "code": code})
	}
	batchtest.Run(t, batchtest.Lab{
		Open: func(t *testing.T) batch.System {
			s, err := New(o, program.Start)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Hosts: [2]string{"n1", "n2"}, Account: "atlas", Queue: "main",
		Pend: func(t *testing.T, j batchtest.Job) string { return submit(t, "nowhere", j) },
		Run:  submit,
		Finish: func(t *testing.T, id string, status int) {
			end(t, id, map[bool]string{true: "done", false: "failed"}[status == 0], status)
		},
		Cancel: func(t *testing.T, id string) { end(t, id, "cancelled", 0) },
		AdminClose: func(t *testing.T, host, reason string) {
			set(t, host, map[string]any{"closed_by": "eva", "reason": reason})
		},
		AdminOpen: func(t *testing.T, host string) { set(t, host, nil) },
	})
}

// TestGarbage: whatever the program prints, the error says what is wrong, and nothing is taken for an answer.
func TestGarbage(t *testing.T) {
	for name, c := range map[string]struct{ script, says string }{
		"nothing":            {"true", "not a JSON object"},
		"text":               {"echo hello", `"hello\n"`},
		"cut off":            {`printf '{"nodes": [{'`, "not a JSON object"},
		"more behind":        {"echo '{}'; echo bye", `bye`},
		"an array":           {"echo '[]'", "not a JSON object"},
		"a failure":          {"echo lost the database >&2; exit 3", "lost the database"},
		"answer and failure": {"echo '{}'; exit 3", "status 3"},
		"too much":           {"while :; do echo '{\"nodes\": []}'; done", "more than it may"},
		"too long":           {"sleep 300", "did not end in time"},
		"nonsense":           {`echo '{"nodes": [{"name": "n1", "state": "dancing"}]}'`, "dancing"},
		"negative": {`echo '{"nodes": [{"name": "n1", "state": "idle", "cpus": 2, "free": 3}]}'`,
			"3 of 2 CPUs"},
		"binary": {`printf '\377\376'`, "?"},
	} {
		t.Run(name, func(t *testing.T) {
			limit := time.Minute // a busy host takes seconds for any of them
			if name == "too long" {
				limit = time.Second
			}
			s, err := New(Options{Program: write(t, "#!/bin/sh\n"+c.script+"\n", 0o755), Limit: limit,
				Output: 1 << 16}, program.Start)
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Nodes(t.Context())
			if e := new(farm.Error); !errors.As(err, &e) || e.Code != CodeBadProgram ||
				!strings.Contains(e.Error(), c.says) {
				t.Errorf("%v, not %q", err, c.says)
			}
		})
	}
	s, err := New(Options{Program: write(t,
		"#!/bin/sh\n"+`echo '{"error": {"kind": "conflict", "message": "closed by Eva"}}'`, 0o755)}, program.Start)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Open(t.Context(), "n1")
	if e := new(farm.Error); !errors.As(err, &e) || e.Kind != farm.Conflict || e.Message != "closed by Eva" {
		t.Error(err)
	}
	// A cursor that does not move would count the same jobs for ever.
	s, _ = New(Options{Program: write(t,
		"#!/bin/sh\n"+`echo '{"ended": [{"id": "1", "finished": "2026-01-01T00:00:00Z", "outcome": "done"}], "cursor": "7"}'`, 0o755)}, program.Start)
	if _, _, err := s.Ended(t.Context(), "7", 10); err == nil {
		t.Error("a cursor that stands still is taken")
	}
}

func TestUnsafe(t *testing.T) {
	for name, path := range map[string]string{
		"relative":         "packaging/batch-program.py",
		"not there":        "/nonexistent/program",
		"others' to write": write(t, "#!/bin/sh\n", 0o777),
		"no program":       write(t, "#!/bin/sh\n", 0o644),
		"a directory":      t.TempDir(),
	} {
		if _, err := New(Options{Program: path}, program.Start); err == nil {
			t.Errorf("%s: %s is run", name, path)
		}
	}
	if _, err := New(Options{Program: write(t, "#!/bin/sh\n", 0o755)}, program.Start); err != nil {
		t.Errorf("a sound program: %v", err)
	}
}
