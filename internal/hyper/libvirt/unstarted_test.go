package libvirt_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/grange-project/grange/internal/hyper"
)

// TestUnstarted has a libvirtd that was killed between its record of a machine and the start of QEMU. libvirtd itself
// would list that machine for ever, and let nobody destroy it.
func TestUnstarted(t *testing.T) {
	p := startLibvirtd(t)
	h := p.open(t)
	m, other := p.machine(t, sleeps), p.machine(t, sleeps)
	for _, m := range []hyper.Machine{m, other} {
		if _, err := h.Start(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	up := p.kill(t)
	pidFile, status := filepath.Join(p.dir, "run/qemu", m.Name+".pid"), filepath.Join(p.dir, "run/qemu", m.Name+".xml")
	text, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if text, err = os.ReadFile(status); err != nil {
		t.Fatal(err)
	}
	before := regexp.MustCompile(`<domstatus state='[a-z]+' reason='[a-z]+' pid='\d+'>`)
	if !before.Match(text) {
		t.Fatalf("not the status of a machine that runs:\n%.500s", text)
	}
	text = before.ReplaceAll(text, []byte(`<domstatus state='paused' reason='starting up' pid='0'>`))
	if err := os.WriteFile(status, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(pidFile); err != nil {
		t.Fatal(err)
	}
	up()
	if names := p.virsh(t, "list", "--all", "--name"); strings.TrimSpace(names) != other.Name {
		t.Errorf("libvirt lists %q, want %s alone", names, other.Name)
	}
	if _, err := h.Start(t.Context(), m); err != nil {
		t.Errorf("the same machine again: %v", err)
	}
}
