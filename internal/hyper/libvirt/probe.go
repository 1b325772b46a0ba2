package libvirt

import (
	"bufio"
	"bytes"
	"cmp"
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
	Image     func() (kernel, initrd string) // "" as long as there is none
	Timeout   time.Duration                  // after this machines are emulated until the verdict comes; 0 means 10 s
	Limit     time.Duration                  // when an attempt is given up; 0 means 2 minutes
	CacheFile string                         // keeps the verdict for this boot of the host and this kernel; empty: nothing is kept
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
	Late  int       `json:"late,omitempty"` // attempts that came to no end: a busy host may be the reason
	Tried time.Time `json:"tried,omitzero"` // the last of them
}

const (
	lookAgain = 10 * time.Second // for a device or an image that is not there yet
	mostLate  = 3                // attempts
)

// tryAgain is when the next attempt follows one that came to no end: each may keep a CPU busy until its limit.
func tryAgain(late int) time.Duration {
	if late <= 1 {
		return 10 * time.Minute
	}
	return time.Hour
}

func emulate(format string, args ...any) Verdict { return Verdict{TCG, fmt.Sprintf(format, args...)} }

// Probe boots a guest under KVM, with QEMU and without libvirt, and sees whether it reaches user space. Nothing less proves
// anything: on some hosts, virtual ones above all, /dev/kvm opens, a VM is created, and the guest hangs at its first
// instructions. When in doubt the verdict is emulation, with the reason, until a better one comes. It calls use with each verdict, and
// returns when the last one is final for this boot of the host, or ctx ends.
func Probe(ctx context.Context, c ProbeConfig, use func(Verdict)) {
	var last Verdict
	tell := func(v Verdict) {
		if v != last {
			last = v
			use(v)
		}
	}
	for {
		wait := probeOnce(ctx, c, tell)
		if wait == 0 {
			return
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// probeOnce makes one attempt, where one is due. It returns how long until the next; 0: never.
func probeOnce(ctx context.Context, c ProbeConfig, use func(Verdict)) time.Duration {
	if v, ok := device(); !ok {
		use(v)
		return lookAgain
	}
	kernel, initrd := c.Image()
	if kernel == "" {
		use(emulate("there is no micro image to probe KVM with yet; build it: grange image build micro"))
		return lookAgain
	}
	qemu, err := emulator()
	if err != nil {
		use(emulate("KVM was not tried: %v", err))
		return lookAgain
	}
	key, err := cacheKey(kernel, initrd)
	if err != nil {
		use(emulate("KVM was not tried: %v", err))
		return lookAgain
	}
	if old, ok := readCache(c.CacheFile); ok && old.BootID == key.BootID && old.Digest == key.Digest {
		use(old.Verdict)
		if old.Late == 0 || old.Late >= mostLate {
			return 0
		}
		key.Late = old.Late
		if wait := time.Until(old.Tried.Add(tryAgain(old.Late))); wait > 0 {
			return wait
		}
	}
	err = tryKVM(ctx, qemu, kernel, initrd, c, func(slow string) { use(emulate("%s; it is given more time", slow)) })
	if ctx.Err() != nil {
		return 0
	}
	key.Verdict = Verdict{Accelerator: KVM}
	hangs := errors.Is(err, errLate)
	if err != nil {
		key.Verdict = emulate("/dev/kvm opens, but %v", err)
	}
	if key.Late++; !hangs {
		key.Late = 0
	}
	key.Tried = time.Now()
	_ = writeCache(c.CacheFile, key) // without it the next start probes again
	use(key.Verdict)
	if !hangs || key.Late >= mostLate {
		return 0
	}
	return tryAgain(key.Late)
}

// device reports whether this process can open /dev/kvm.
func device() (Verdict, bool) {
	fd, err := unix.Open("/dev/kvm", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return emulate("this host has no /dev/kvm: virtualisation is off in its firmware, or the kvm module is not loaded"), false
	}
	if err != nil {
		return emulate("/dev/kvm cannot be opened: %v", err), false
	}
	unix.Close(fd)
	return Verdict{}, true
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

// userSpace is what Linux prints right before its first user-space instruction.
const userSpace = "as init process"

// errLate is the error of a guest that came to no end.
var errLate = errors.New("a guest under KVM hangs")

// tryKVM boots the guest. late is called when it takes longer than a guest should.
func tryKVM(ctx context.Context, qemu, kernel, initrd string, c ProbeConfig, late func(slow string)) error {
	soon, limit := cmp.Or(c.Timeout, 10*time.Second), cmp.Or(c.Limit, 2*time.Minute)
	ctx, cancel := context.WithTimeout(ctx, max(soon, limit))
	defer cancel()
	cmd := exec.CommandContext(ctx, qemu, "-nodefaults", "-no-user-config", "-display", "none", "-machine", "pc,accel=kvm", "-cpu", "host",
		"-smp", "1", "-m", "512", "-serial", "stdio", "-no-reboot",
		"-kernel", kernel, "-initrd", initrd, "-append", "console=ttyS0 loglevel=7 panic=-1")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second // what it started itself is not waited for
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("QEMU cannot be started: %w", err)
	}
	slow := time.AfterFunc(soon, func() {
		_ = unix.Setpriority(unix.PRIO_PROCESS, cmd.Process.Pid, 19) // machines run by now
		late(fmt.Sprintf("a guest under KVM has not reached user space within %s", soon))
	})
	printed, reached := 0, false
	for lines := bufio.NewReader(out); !reached; {
		line, err := lines.ReadString('\n')
		printed += len(line)
		reached = strings.Contains(line, userSpace)
		if err != nil {
			break
		}
	}
	slow.Stop()
	ranOut := ctx.Err() != nil
	cancel() // ends QEMU
	err = cmd.Wait()
	switch {
	case reached:
		return nil
	case ranOut && printed == 0:
		return fmt.Errorf("%w: it printed nothing within %s", errLate, limit)
	case ranOut:
		return fmt.Errorf("%w: it did not reach user space within %s", errLate, limit)
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

func cacheKey(kernel, initrd string) (cachedVerdict, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return cachedVerdict{}, err
	}
	sum := sha256.New()
	for _, path := range []string{kernel, initrd} {
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
