package libvirt_test

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// TestOverhead compares a start through libvirt with QEMU alone on the same kernel, up to the guest's first line, in
// pairs for the machine is shared and noisy. GRANGE_TEST_PAIRS sets how many.
func TestOverhead(t *testing.T) {
	kernel, initrd := testKernel(t)
	p := startLibvirtd(t)
	h := p.open(t)
	pairs := 1
	if n, err := strconv.Atoi(os.Getenv("GRANGE_TEST_PAIRS")); err == nil {
		pairs = n
	}
	// The guest of a busy host may miss the ticks that the kernel looks for, and panics without no_timer_check.
	const cmdline = "console=ttyS0 quiet panic=-1 no_timer_check"
	m := p.machine(t, sleeps)
	m.Disks = nil
	m.Plan.Cells[0].Memory = 512 * farm.MiB
	m.Plan.Emulator = farm.NewCPUSet(0, 1)
	m.Boot = hyper.Boot{Kernel: kernel, Initrd: initrd, Cmdline: cmdline}
	var raw, made, booted, stopped, whole []time.Duration
	for range pairs + 1 {
		raw = append(raw, rawBoot(t, kernel, initrd, cmdline))
		began := time.Now()
		if _, err := h.Start(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		made = append(made, time.Since(began))
		resumed := time.Now()
		ready := awaitLine(t, m.Console)
		if err := h.Resume(t.Context(), m.ID); err != nil {
			t.Fatal(err)
		}
		<-ready
		booted, whole = append(booted, time.Since(resumed)), append(whole, time.Since(began))
		ending := time.Now()
		if err := h.Stop(t.Context(), m.ID); err != nil {
			t.Fatal(err)
		}
		stopped = append(stopped, time.Since(ending))
	}
	// The first pair is a warm-up: libvirt probes QEMU once.
	t.Logf("raw %v, libvirt %v = start %v + boot %v; stop %v; medians of %d pairs",
		median(raw[1:]), median(whole[1:]), median(made[1:]), median(booted[1:]), median(stopped[1:]), pairs)
}

func median(d []time.Duration) time.Duration {
	s := slices.Clone(d)
	slices.Sort(s)
	return s[len(s)/2].Round(time.Millisecond)
}

// testKernel gives a kernel, and an initramfs whose init prints READY on the console and powers off.
func testKernel(t *testing.T) (kernel, initrd string) {
	t.Helper()
	kernel = os.Getenv("GRANGE_TEST_KERNEL")
	if kernel == "" {
		t.Skip("skip boot: GRANGE_TEST_KERNEL names no kernel")
	}
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Skip("skip boot: busybox-static is not installed")
	}
	dir, err := os.MkdirTemp("", "initrd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	initrd = filepath.Join(dir, "i.cpio")
	b := packCPIO([]cpioFile{
		{Name: "dev", Mode: 0o040755},
		{Name: "bin", Mode: 0o040755},
		{Name: "bin/busybox", Mode: 0o100755, Data: busybox},
		{Name: "init", Mode: 0o100755,
			Data: []byte("#!/bin/busybox sh\n/bin/busybox mount -t devtmpfs dev /dev\necho READY " +
				">/dev/ttyS0\n/bin/busybox poweroff -f\n")},
	})
	if err := os.WriteFile(initrd, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return kernel, initrd
}

func rawBoot(t *testing.T, kernel, initrd, cmdline string) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", "-machine", "pc", "-accel", "tcg,thread=multi", "-smp", "2",
		"-m", "512", "-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot", "-kernel",
		kernel, "-initrd", initrd, "-append", cmdline)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cancel()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(lines.Text(), "READY") {
			return time.Since(began)
		}
	}
	t.Fatal("QEMU ended without READY")
	return 0
}

// awaitLine connects to a console before the guest runs and closes the channel when READY comes.
func awaitLine(t *testing.T, console string) <-chan struct{} {
	t.Helper()
	conn, err := net.Dial("unix", console)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	go func() {
		defer close(ready)
		defer conn.Close()
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			if strings.Contains(lines.Text(), "READY") {
				return
			}
		}
		t.Error("the console ended without READY")
	}()
	return ready
}
