package apiserver

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api/fleet"
)

var shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// TestGuide runs the lines of docs/guide/api.md as they stand, but for where the server is, against a server with a
// host that does what it is told.
func TestGuide(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("no curl")
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "guide", "api.md"))
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	host := make(chan struct{})
	go func() { defer close(host); l.host(ctx) }()
	defer func() { cancel(); <-host }()
	var script strings.Builder
	script.WriteString("set -eu\n")
	for _, block := range shellBlock.FindAllStringSubmatch(string(text), -1) {
		script.WriteString(block[1])
	}
	lines := strings.NewReplacer("/run/grange-server/server.sock", l.socket, "https://grange.example.org:7480", l.url,
		"/etc/grange/ca.pem", filepath.Join(l.dir, "ca.pem")).Replace(script.String())
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", lines)
	cmd.Dir, cmd.WaitDelay = t.TempDir(), time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, said := range []string{`"user":"ann"`, `"state":"running"`, `"power":"off"`, `"tier":"back"`,
		`"deleted":true`} {
		if !strings.Contains(string(out), said) {
			t.Errorf("nothing said %s:\n%s", said, out)
		}
	}
	if vms, _, err := l.root().VMs.List(ctx, fleet.VMFilter{}); err != nil || len(vms) != 0 {
		t.Errorf("%v are left, %v", vms, err)
	}
}
