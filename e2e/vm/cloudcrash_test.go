package vm

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
)

// TestCloudVMWithoutServer has a host keep a VM of a server that is not there: what was wanted last lies beside the
// VM's disks. Between all that is wanted the agent is killed, and twice in the middle of it.
func TestCloudVMWithoutServer(t *testing.T) {
	w := newKept(t)
	w.wants(t, func(v *fleet.WantedVM) {})
	w.await(t, "running", true)
	first := host.QEMUs()
	if len(first) != 1 {
		t.Fatalf("QEMUs %v", first)
	}
	w.wants(t, func(v *fleet.WantedVM) {}) // the agent is another one; the VM is not
	w.await(t, "running", true)
	if again := host.QEMUs(); len(again) != 1 || again[0] != first[0] {
		t.Errorf("QEMUs %v, were %v", again, first)
	}
	if r := run(t, host.Grange(ctx(t), "vm", "stop", w.Wanted.ID), ""); r.code == 0 ||
		!strings.Contains(r.errors, "is the server's") {
		t.Errorf("the host's own command: status %d, %s", r.code, r.errors)
	}

	w.wants(t, func(v *fleet.WantedVM) { v.Boots++ })
	w.await(t, "starting", false) // its machine is gone, or about to come
	w.wants(t, func(v *fleet.WantedVM) {})
	w.await(t, "running", true)
	if again := host.QEMUs(); len(again) != 1 || again[0] == first[0] || w.read(t).Boots != 1 {
		t.Errorf("restarted: QEMUs %v, were %v; %d boots", again, first, w.read(t).Boots)
	}
	syscall.Kill(host.QEMUs()[0], syscall.SIGKILL)
	w.await(t, "starting", false)
	w.await(t, "running", true)

	scratch := filepath.Join(w.dir, "scratch.raw")
	before := inode(t, scratch)
	w.wants(t, func(v *fleet.WantedVM) { v.Power = "off" })
	w.await(t, "stopped", false)
	if left := host.QEMUs(); len(left) > 0 || inode(t, scratch) != before {
		t.Errorf("stopped: QEMUs %v", left)
	}
	mark(t, scratch)
	w.wants(t, func(v *fleet.WantedVM) { v.Power, v.Builds, v.Fresh = "on", 1, 1 })
	w.await(t, "starting", false)
	w.wants(t, func(v *fleet.WantedVM) {})
	w.await(t, "running", true)
	if r := w.read(t); r.Builds != 1 || r.Fresh != 1 || marked(t, scratch) || len(host.QEMUs()) != 1 {
		t.Errorf("rebuilt: %+v, QEMUs %v", r, host.QEMUs())
	}
	if r := run(t, host.Grange(ctx(t), "vm", "console", w.Wanted.ID), ""); r.code != 0 || len(r.out) == 0 {
		t.Errorf("console: status %d, %q", r.code, r.errors)
	}

	w.wants(t, func(v *fleet.WantedVM) { v.Power = "deleted" })
	w.await(t, "gone", false)
	if left := host.Leaks(ctx(t)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Stat(w.dir); !os.IsNotExist(err) {
		t.Errorf("its disks: %v", err)
	}
}

// kept is the record of a VM beside its disks, as far as this test knows it.
type kept struct {
	Version       int
	Created       time.Time
	Wanted        fleet.WantedVM
	Boots, Builds int
	Fresh         int

	dir string
}

func newKept(t *testing.T) *kept {
	t.Helper()
	k := &kept{Version: 1, Created: time.Now(), Wanted: fleet.WantedVM{ID: api.NewID(), Name: "web", Project: "atlas",
		Owner: "ann", Hostname: "web", Power: "on", Image: "micro",
		Shape: fleet.Shape{CPUs: 1, Memory: 256 << 20, Scratch: 64 << 20}}}
	k.dir = filepath.Join(host.Dir, "state/vm", "grange-"+k.Wanted.ID[:13])
	return k
}

func (k *kept) file() string { return filepath.Join(k.dir, "wanted.json") }

func (k *kept) read(t *testing.T) kept {
	t.Helper()
	text, err := os.ReadFile(k.file())
	if err != nil {
		t.Fatal(err)
	}
	var now kept
	if err := json.Unmarshal(text, &now); err != nil {
		t.Fatal(err)
	}
	return now
}

// wants kills the agent, changes what is wanted, and starts another one.
func (k *kept) wants(t *testing.T, change func(w *fleet.WantedVM)) {
	t.Helper()
	host.KillAgent()
	whole := map[string]any{"Version": k.Version, "Created": k.Created}
	if text, err := os.ReadFile(k.file()); err == nil {
		if err := json.Unmarshal(text, &whole); err != nil {
			t.Fatal(err)
		}
	} else if err := os.Mkdir(k.dir, 0o711); err != nil {
		t.Fatal(err)
	}
	change(&k.Wanted)
	whole["Wanted"] = k.Wanted
	text, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(k.file(), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := host.StartAgent(ctx(t)); err != nil {
		t.Fatal(err)
	}
}

// await waits until the host shows the VM so; "gone" is no VM at all, or one that says so.
func (k *kept) await(t *testing.T, state string, ready bool) {
	t.Helper()
	await(t, host, state, func(vms []api.VM) bool {
		for _, v := range vms {
			if v.ID == k.Wanted.ID {
				return v.State == state && (v.Cloud.Ready || !ready)
			}
		}
		return state == "gone"
	})
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var s syscall.Stat_t
	if err := syscall.Stat(path, &s); err != nil {
		t.Fatal(err)
	}
	return s.Ino
}

// markText is written where nothing else is: at a file's very end.
const markText = "grange test"

// mark makes a file known again. Its inode's number would not do: a new file may get that of the old one.
func mark(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	end, err := f.Seek(-int64(len(markText)), io.SeekEnd)
	if err == nil {
		_, err = f.WriteAt([]byte(markText), end)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func marked(t *testing.T, path string) bool {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.HasSuffix(string(content), markText)
}
