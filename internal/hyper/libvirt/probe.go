package libvirt

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ProbeConfig says what to boot to find out whether KVM works.
type ProbeConfig struct {
	Kernel, Initrd string
	Timeout        time.Duration // 0 means 10 s; a guest under KVM needs less than one
	CacheFile      string        // keeps the verdict for this boot of the host and this kernel; empty: nothing is kept
}

// Verdict tells what machines run on. Why is empty for KVM, and one line otherwise.
type Verdict struct {
	Accelerator Accelerator `json:"accelerator"`
	Why         string      `json:"why,omitempty"`
}

// cachedVerdict is a verdict with what it holds for.
type cachedVerdict struct {
	BootID string `json:"boot_id"`
	Digest string `json:"digest"` // SHA-256 of kernel and initramfs
	Verdict
}

// userSpace is what Linux prints right before its first user-space instruction.
const userSpace = "as init process"

// Probe boots a guest under KVM, with QEMU and without libvirt, and sees whether it reaches user space. Nothing less proves
// anything: on some hosts, virtual ones above all, /dev/kvm opens, a VM is created, and the guest hangs at its first
// instructions. When in doubt the verdict is emulation, with the reason.
func Probe(ctx context.Context, c ProbeConfig) Verdict {
	no := func(format string, args ...any) Verdict { return Verdict{TCG, fmt.Sprintf(format, args...)} }
	fd, err := unix.Open("/dev/kvm", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return no("this host has no /dev/kvm: virtualisation is off in its firmware, or the kvm module is not loaded")
	}
	if err != nil {
		return no("/dev/kvm cannot be opened: %v", err)
	}
	unix.Close(fd)
	qemu, err := emulator()
	if err != nil {
		return no("KVM was not tried: %v", err)
	}
	key, err := cacheKey(c)
	if err != nil {
		return no("KVM was not tried: %v", err)
	}
	if old, ok := readCache(c.CacheFile); ok && old.BootID == key.BootID && old.Digest == key.Digest {
		return old.Verdict
	}
	err = tryKVM(ctx, qemu, c)
	if ctx.Err() != nil {
		return no("KVM was not tried to the end: %v", context.Cause(ctx))
	}
	key.Verdict = Verdict{Accelerator: KVM}
	if err != nil {
		key.Verdict = no("/dev/kvm opens, but %v", err)
	}
	_ = writeCache(c.CacheFile, key) // without it the next start probes again
	return key.Verdict
}

// emulator finds QEMU where libvirt looks for it too.
func emulator() (string, error) {
	for _, name := range []string{"/usr/bin/qemu-system-x86_64", "/usr/bin/qemu-kvm", "/usr/libexec/qemu-kvm"} {
		if _, err := exec.LookPath(name); err == nil {
			return name, nil
		}
	}
	return "", errors.New("no QEMU for x86_64 is installed")
}

func tryKVM(ctx context.Context, qemu string, c ProbeConfig) error {
	limit := c.Timeout
	if limit == 0 {
		limit = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, qemu, "-nodefaults", "-no-user-config", "-display", "none", "-machine", "pc,accel=kvm", "-cpu", "host",
		"-smp", "1", "-m", "512", "-serial", "stdio", "-no-reboot",
		"-kernel", c.Kernel, "-initrd", c.Initrd, "-append", "console=ttyS0 loglevel=7 panic=-1")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	cmd.Dir = "/"
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("QEMU cannot be started: %w", err)
	}
	printed, reached := 0, false
	for lines := bufio.NewReader(out); !reached; {
		line, err := lines.ReadString('\n')
		printed += len(line)
		reached = strings.Contains(line, userSpace)
		if err != nil {
			break
		}
	}
	late := ctx.Err() != nil
	cancel() // ends QEMU
	err = cmd.Wait()
	switch {
	case reached:
		return nil
	case late && printed == 0:
		return fmt.Errorf("a guest under KVM hangs: it printed nothing within %s", limit)
	case late:
		return fmt.Errorf("a guest under KVM did not reach user space within %s", limit)
	}
	return fmt.Errorf("QEMU gives up under KVM: %s", firstLine(complaint.String(), err))
}

func firstLine(text string, err error) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if line == "" {
		return fmt.Sprint(err)
	}
	return line
}

func cacheKey(c ProbeConfig) (cachedVerdict, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return cachedVerdict{}, err
	}
	sum := sha256.New()
	for _, path := range []string{c.Kernel, c.Initrd} {
		f, err := os.Open(path)
		if err != nil {
			return cachedVerdict{}, err
		}
		_, err = io.Copy(sum, f)
		f.Close()
		if err != nil {
			return cachedVerdict{}, fmt.Errorf("read %s: %w", path, err)
		}
	}
	return cachedVerdict{BootID: strings.TrimSpace(string(boot)), Digest: hex.EncodeToString(sum.Sum(nil))}, nil
}

func readCache(path string) (cachedVerdict, bool) {
	var v cachedVerdict
	b, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(b, &v) != nil || v.Accelerator != KVM && v.Accelerator != TCG {
		return cachedVerdict{}, false // absent or half written: probe again
	}
	return v, true
}

func writeCache(path string, v cachedVerdict) error {
	if path == "" {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err := f.Write(append(b, '\n')); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
