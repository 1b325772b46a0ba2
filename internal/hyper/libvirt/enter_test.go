package libvirt_test

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/hyper/libvirt"
)

// TestEnter: the process that libvirt made for a machine is seen once, before it is QEMU.
func TestEnter(t *testing.T) {
	p := startLibvirtd(t)
	l := p.open(t)
	m := p.machine(t, []byte{0xf4}) // halts
	var pids []int
	var exe string
	m.Enter = func(pid int) {
		pids = append(pids, pid)
		exe, _ = os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	}
	applied, err := l.Start(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if len(pids) != 1 || pids[0] != applied.PID {
		t.Errorf("entered: %v; the machine is process %d", pids, applied.PID)
	}
	if !strings.Contains(exe, "libvirt") && !strings.Contains(exe, "virtqemud") {
		t.Errorf("its program was %q by then", exe)
	}
	if err := l.Stop(t.Context(), m.ID); err != nil {
		t.Error(err)
	}
}

// TestHeld: a start whose process its batch system has stopped lasts until that lets it go on; one that stands still
// for no reason is given up.
func TestHeld(t *testing.T) {
	p := startLibvirtd(t)
	l := p.open(t)
	defer libvirt.SetStartTimeout(libvirt.SetStartTimeout(3 * time.Second))
	var pid, looks atomic.Int64
	m := p.machine(t, []byte{0xf4})
	m.Enter = func(n int) {
		pid.Store(int64(n))
		syscall.Kill(n, syscall.SIGSTOP)
	}
	m.Held = func() bool {
		if looks.Add(1) == 3 {
			syscall.Kill(int(pid.Load()), syscall.SIGCONT)
		}
		return true
	}
	if _, err := l.Start(t.Context(), m); err != nil || looks.Load() < 3 {
		t.Fatalf("a start that was held: %v, after %d looks", err, looks.Load())
	}
	if err := l.Stop(t.Context(), m.ID); err != nil {
		t.Error(err)
	}
	m = p.machine(t, []byte{0xf4})
	m.Enter = func(n int) { syscall.Kill(n, syscall.SIGSTOP) }
	m.Held = func() bool { return false }
	if _, err := l.Start(t.Context(), m); err == nil {
		t.Error("a start that stands still was not given up")
	}
}
