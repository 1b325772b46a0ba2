package libvirt

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// program copies a program: a gate on the machine's own would stop others' tests.
func program(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/bin/echo")
	if err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, text, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func gateAt(t *testing.T, program string, look func(pid int)) *gate {
	t.Helper()
	g, err := openGate(program, look)
	if errors.Is(err, errNoGate) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestGate: whoever executes the program is looked at before, is not that program yet, and is not kept by a gate that
// is closed.
func TestGate(t *testing.T) {
	path := program(t)
	var mu sync.Mutex
	seen := map[int]string{}
	g := gateAt(t, path, func(pid int) {
		exe, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
		mu.Lock()
		defer mu.Unlock()
		seen[pid] = exe
	})
	for range 20 {
		out, err := exec.Command("/bin/sh", "-c", "echo $$; exec "+path+" ran").Output()
		if err != nil {
			t.Fatal(err)
		}
		pid, rest, _ := strings.Cut(string(out), "\n")
		n, err := strconv.Atoi(pid)
		if err != nil || rest != "ran\n" {
			t.Fatalf("%q %v", out, err)
		}
		mu.Lock()
		if exe, ok := seen[n]; !ok || exe == "" || exe == path {
			t.Errorf("process %d was seen as %q, %v", n, exe, ok)
		}
		mu.Unlock()
	}
	g.close()
	before := len(seen)
	if out, err := exec.Command(path, "later").Output(); err != nil || string(out) != "later\n" || len(seen) != before {
		t.Errorf("behind a gate that is closed: %q, %v, %d more seen", out, err, len(seen)-before)
	}
}

// TestGateMany: nobody of many at a time waits for ever, also when the gate is closed under them. The shell executes
// the program: see openGate.
func TestGateMany(t *testing.T) {
	path := program(t)
	g := gateAt(t, path, func(int) {})
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			if out, err := exec.Command("/bin/sh", "-c", `exec "$0" x`, path).Output(); err != nil || string(out) != "x\n" {
				t.Errorf("%q, %v", out, err)
			}
		})
	}
	g.close()
	all.Wait()
}

func TestGateNowhere(t *testing.T) {
	if _, err := openGate(filepath.Join(t.TempDir(), "nothing"), nil); !errors.Is(err, errNoGate) {
		t.Errorf("a gate at nothing: %v", err)
	}
	(*gate)(nil).close()
}
