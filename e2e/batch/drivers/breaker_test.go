package drivers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/internal/batch/exec"
	"github.com/grange-project/grange/internal/program"
)

// TestBreaker: a host on which no VM comes up, whatever the image, closes itself in its batch system with the reason,
// and heals.
func TestBreaker(t *testing.T) {
	if os.Getenv("GRANGE_BATCH") == "" {
		t.Skip("takes minutes: `make test-batch` runs it")
	}
	t.Parallel() // each with a system of its own, which mostly waits
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	l, err := lab.Start(ctx, lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if _, err := l.Client.MakeImage(ctx, api.ImageRequest{Name: "other"}, func(string) {}); err != nil {
		t.Fatal(err)
	}
	site := filepath.Join(l.Dir, "site")
	example, err := filepath.Abs("../../../packaging/batch-program.py")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(site+".py", text, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(site, []byte(fmt.Sprintf("#!/bin/sh\nSTATE=%s.json exec /usr/bin/python3 %[1]s.py\n", site)),
		0o755); err != nil {
		t.Fatal(err)
	}
	// The node as the batch system has it.
	out, err := program.Start(ctx, program.Call{Path: site,
		Input: []byte(`{"protocol": 1, "verb": "test_set", "host": "n1"}`)})
	if err != nil {
		t.Fatal(err, string(out))
	}
	driver, err := exec.New(exec.Options{Program: site}, program.Start)
	if err != nil {
		t.Fatal(err)
	}
	configure := func(boot string) {
		t.Helper()
		if err := l.Configure(fmt.Sprintf(
			"boot_timeout = %q\nattempts = 1\n[batch]\nsystem = \"exec\"\nprogram = %q\nnode = \"n1\"\n", boot,
			site)); err != nil {
			t.Fatal(err)
		}
	}
	node := func() (closed, ours bool, reason string) {
		t.Helper()
		nodes, err := driver.Nodes(ctx)
		if err != nil || len(nodes) != 1 {
			t.Fatal(nodes, err)
		}
		return nodes[0].Closed, nodes[0].Ours, nodes[0].Reason
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(6 * time.Minute); !ok(); time.Sleep(200 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("never: %s\n%s", what, l.AgentLog())
			}
		}
	}
	configure("100ms")
	l.KillAgent() // only another agent takes a new gate
	if err := l.StartAgent(ctx); err != nil {
		t.Fatal(err)
	}
	for i, image := range []string{"micro", "other", "micro"} {
		out, err := l.Exec(ctx, "--image", image, "--", "true").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "guest-silent") {
			t.Fatalf("start %d: %v\n%s", i, err, out)
		}
	}
	refused, err := l.Exec(ctx, "--", "true").CombinedOutput()
	if err == nil || !strings.Contains(string(refused), "backed-off") {
		t.Errorf("after three failures with two images: %v\n%s", err, refused)
	}
	until("the host is closed", func() bool { closed, _, _ := node(); return closed })
	if _, ours, reason := node(); !ours || !strings.Contains(reason, "the guest did not come up") {
		t.Errorf("closed by us %t, for %q", ours, reason)
	}
	h, err := l.Client.Host(ctx)
	// One user's failures close no host: those of the agent's own VM, which they had it try, do.
	if err != nil || !slices.ContainsFunc(h.BackOffs, func(b api.BackOff) bool {
		return b.Kind == "host" &&
			b.Closed
	}) {
		text, _ := json.Marshal(h.BackOffs)
		t.Errorf("the host shows %s, %v", text, err)
	}
	// An agent that is killed meanwhile does not forget; what was wrong is mended.
	configure("2m")
	l.KillAgent()
	if err := l.StartAgent(ctx); err != nil {
		t.Fatal(err)
	}
	until("the host heals", func() bool { closed, _, _ := node(); return !closed })
	if out, err := l.Exec(ctx, "--", "echo", "works").CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "works") {
		t.Errorf("a healed host: %v\n%s", err, out)
	}
	if left := l.Leaks(ctx); len(left) > 0 {
		t.Error(left)
	}
}
