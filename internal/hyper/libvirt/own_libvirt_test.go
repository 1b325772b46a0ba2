package libvirt_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/grange-project/grange/internal/hyper"
)

// TestOwnUsers runs two machines as users of their own and one as QEMU's, as an agent did before an upgrade. All are
// known again by another agent, and none of the users opens what is another's.
func TestOwnUsers(t *testing.T) {
	p := startLibvirtd(t)
	h := p.open(t)
	qemu, _, err := h.QEMUOwner(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, why, err := h.OwnGroup(t.Context(), vmUser, 0); err != nil || why != "" {
		t.Fatalf("no user of their own: %q, %v", why, err)
	}
	want := map[string]uint32{}
	var all []hyper.Machine
	for _, uid := range []uint32{vmUser, vmUser + 1, 0} {
		m := p.machine(t, sleeps)
		m.UID, m.Group = uid, 0
		if uid != 0 {
			if m.Group, _, err = h.OwnGroup(t.Context(), uid, 0); err != nil {
				t.Fatal(err)
			}
		}
		applied, err := h.Start(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		if want[m.ID] = uid; uid == 0 {
			want[m.ID] = uint32(qemu)
		}
		if applied.UID != uid {
			t.Errorf("applied as user %d, want %d", applied.UID, uid)
		}
		all = append(all, m)
	}
	found, err := p.open(t).List(t.Context()) // of an agent that was restarted
	if err != nil || len(found) != len(all) {
		t.Fatalf("found %v, %v", found, err)
	}
	for _, f := range found {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.PID))
		if id := want[f.ID]; err != nil ||
			!strings.Contains(string(text), fmt.Sprintf("Uid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", id)) {
			t.Errorf("machine %s does not run as %d: %v\n%s", f.ID, id, err, text)
		}
	}
	if c, err := h.Confinement(t.Context()); err != nil || c.VMs != 3 || c.Own != 2 || c.Shared != "" {
		t.Errorf("confinement is %+v, %v", c, err)
	}
	p.probe(t, all[0], all[1])
	for _, m := range all {
		if err := h.Stop(t.Context(), m.ID); err != nil {
			t.Error(err)
		}
	}
}

// probe opens, as the user of one machine, all that libvirt keeps of another.
func (p *private) probe(t *testing.T, as, other hyper.Machine) {
	t.Helper()
	paths := []string{other.Console, other.Ports[0].Path}
	filepath.WalkDir(filepath.Join(p.dir, "lib/qemu"), func(path string, _ os.DirEntry, err error) error {
		if err == nil && strings.Contains(path, other.Name) {
			paths = append(paths, path)
		}
		return err
	})
	if len(paths) < 4 {
		t.Fatalf("libvirt keeps nothing of a machine: %v", paths)
	}
	for _, path := range paths[2:] { // the sockets are root's
		if got := opened(t, other, path); got != "open" && !strings.HasSuffix(path, ".sock") {
			t.Errorf("user %d does not open %s of its own: %s", other.UID, path, got)
		}
	}
	for _, path := range paths {
		if got := opened(t, as, path); got != "refused" {
			t.Errorf("user %d opens %s of user %d: %s", as.UID, path, other.UID, got)
		}
	}
}

// opened is what becomes of opening a path as the user of a machine.
func opened(t *testing.T, as hyper.Machine, path string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", opens, path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: as.UID, Gid: as.Group}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

const opens = `
import os, socket, stat, sys
path = sys.argv[1]
try:
    mode = os.stat(path).st_mode
    if stat.S_ISSOCK(mode): socket.socket(socket.AF_UNIX).connect(path)
    elif stat.S_ISDIR(mode): os.listdir(path)
    else: open(path, "rb").read()
    print("open")
except PermissionError: print("refused")
`
