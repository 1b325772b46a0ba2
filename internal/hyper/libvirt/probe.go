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
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/atomicfile"
)

// ProbeConfig says what to boot to find out whether KVM works.
type ProbeConfig struct {
	Image   func() (kernel, initrd string) // "" as long as there is none
	Timeout time.Duration                  // after this machines are emulated until the verdict comes; 0 means 10 s
	Limit   time.Duration                  // when a guest that prints nothing new is given up; 0 means 2 minutes
	// keeps the verdict for this load of KVM and this kernel; empty: nothing is kept
	CacheFile string
	Again     <-chan struct{} // asks for the verdict once more: use is called, also where it is the same
	// reports whether no guest may be booted now, as while KVM is loaded anew: the probe ends its guest, and waits.
	// nil: never. It is called from several goroutines
	Held func() bool
}

// Verdict is what machines run on. Why is empty for KVM, and one line otherwise.
type Verdict struct {
	Accelerator Accelerator `json:"accelerator"`
	Why         string      `json:"why,omitempty"`
}

// cachedVerdict is a verdict with what it holds for.
type cachedVerdict struct {
	BootID string `json:"boot_id"`
	Load   string `json:"load"`   // of the KVM module, as loadOfKVM tells one from the next
	Digest string `json:"digest"` // SHA-256 of kernel and initramfs
	Verdict
	// attempts whose guest stood still: a busy host may be the reason; at least 1 where one was slow
	Late  int       `json:"late,omitempty"`
	Tried time.Time `json:"tried,omitzero"` // the last of them
}

// holdsFor reports whether a verdict was about the same boot, load of the module and guest as key.
func (v cachedVerdict) holdsFor(key cachedVerdict) bool {
	return v.BootID == key.BootID && v.Load == key.Load && v.Digest == key.Digest
}

const (
	lookAgain = 10 * time.Second // for a device or an image that is not there yet
	mostLate  = 3                // attempts whose guest stands still
	mostSlow  = 5                // limits that a guest has which goes on

	heldAgain   = 200 * time.Millisecond
	settleAgain = time.Second     // for a device that udev may be about to bring
	mostSettle  = 3 * time.Minute // of the host's boot, however long udev says that it is busy
)

// udevQueue is there while udev handles events, as `udevadm settle` looks for it.
var udevQueue = "/run/udev/queue"

// tryAgain is when the next attempt follows one that came to no end: each may keep a CPU busy until its limit.
func tryAgain(late int) time.Duration {
	if late <= 1 {
		return 10 * time.Minute
	}
	return time.Hour
}

func emulate(format string, args ...any) Verdict { return Verdict{TCG, fmt.Sprintf(format, args...)} }

// Probe boots a guest under KVM, with QEMU and without libvirt, and sees whether it reaches user space. Nothing less
// proves anything: on some hosts, virtual ones above all, /dev/kvm opens, a VM is created, and the guest hangs at its
// first instructions. When in doubt the verdict is emulation, with the reason, until a better one comes. It calls use
// with each verdict, until ctx ends: a verdict is for one load of the module, and another load, by whomever, is tried
// anew. Where KVM worked before, in an earlier boot too, a guest that is slow then is no verdict: the host is busy, and
// VMs had better wait than be emulated.
func Probe(ctx context.Context, c ProbeConfig, use func(Verdict)) {
	var last Verdict
	kept, ok := readCache(c.CacheFile)
	worked := ok && kept.Accelerator == KVM
	tell := func(v Verdict) {
		worked = worked || v.Accelerator == KVM
		if v != last {
			last = v
			use(v)
		}
	}
	for c.awaitFree(ctx) {
		load := loadOfKVM()
		wait := probeOnce(ctx, c, worked, tell)
		next := time.After(wait)
		if wait == 0 {
			next = nil
		}
		for due := false; !due; {
			select {
			case <-next:
				due = true
			case <-time.After(lookAgain):
				due = loadOfKVM() != load
			case <-c.Again:
				due, last = true, Verdict{}
			case <-ctx.Done():
				return
			}
		}
	}
}

// awaitFree waits until a guest may be booted. It reports false when ctx has ended.
func (c ProbeConfig) awaitFree(ctx context.Context) bool {
	for c.Held != nil && c.Held() {
		select {
		case <-time.After(heldAgain):
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

// whileFree returns a context that ends as soon as no guest may be booted any more: one under way would keep the module
// from being unloaded.
func (c ProbeConfig) whileFree(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if c.Held != nil {
		go func() {
			for look := time.NewTicker(heldAgain); ; {
				select {
				case <-look.C:
					if c.Held() {
						cancel()
					}
				case <-ctx.Done():
					look.Stop()
					return
				}
			}
		}()
	}
	return ctx, cancel
}

// loadOfKVM distinguishes one load of the processor's KVM module from the next: sysfs gives the module's directory a
// new inode each time. It is "" while none is loaded.
func loadOfKVM() string {
	for _, module := range []string{"kvm_intel", "kvm_amd"} {
		var s unix.Stat_t
		if unix.Stat("/sys/module/"+module, &s) == nil {
			return fmt.Sprintf("%s %d", module, s.Ino)
		}
	}
	return ""
}

// probeOnce makes one attempt, where one is due. It returns how long until the next; 0: never.
func probeOnce(ctx context.Context, c ProbeConfig, worked bool, use func(Verdict)) time.Duration {
	if v, err := device("/dev/kvm"); err != nil {
		if errors.Is(err, unix.ENOENT) && settling(uptime()) {
			return settleAgain
		}
		use(v)
		return lookAgain
	}
	kernel, initrd := c.Image()
	if kernel == "" {
		use(emulate("no micro image to probe KVM with yet; build it: grange image build micro"))
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
	if old, ok := readCache(c.CacheFile); ok && old.holdsFor(key) {
		use(old.Verdict)
		if old.Late == 0 || old.Late >= mostLate {
			return 0
		}
		key.Late = old.Late
		if wait := time.Until(old.Tried.Add(tryAgain(old.Late))); wait > 0 {
			return wait
		}
	}
	free, end := c.whileFree(ctx)
	defer end()
	err = tryKVM(free, qemu, kernel, initrd, c, func(slow string) {
		if !worked {
			use(emulate("%s; it is given more time", slow))
		}
	})
	switch {
	case ctx.Err() != nil:
		return 0
	case free.Err() != nil:
		return heldAgain
	}
	key.Verdict = Verdict{Accelerator: KVM}
	if err != nil {
		key.Verdict = emulate("/dev/kvm opens, but %v", err)
	}
	key.Late = lateAfter(key.Late, err)
	key.Tried = time.Now()
	_ = writeCache(c.CacheFile, key) // without it the next start probes again
	use(key.Verdict)
	if key.Late == 0 || key.Late >= mostLate {
		return 0
	}
	return tryAgain(key.Late)
}

// lateAfter counts attempts that came to no end. One whose guest was only slow proves nothing, and is always followed
// by another.
func lateAfter(late int, err error) int {
	switch {
	case errors.Is(err, errSlow):
		return max(late, 1)
	case errors.Is(err, errLate):
		return late + 1
	}
	return 0
}

// device opens KVM's device as QEMU does. The verdict is for an error.
func device(path string) (Verdict, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return emulate("this host has no /dev/kvm: virtualisation is off in its firmware, or the kvm module is not " +
			"loaded"), err
	}
	if err != nil {
		return emulate("/dev/kvm cannot be opened: %v", err), err
	}
	defer unix.Close(fd)
	var about unix.Stat_t
	if err := unix.Fstat(fd, &about); err != nil || about.Mode&unix.S_IFMT != unix.S_IFCHR {
		return emulate("/dev/kvm is no device, but a file that somebody made while KVM's module was out; try: rm /dev/kvm, " +
			"and load kvm_amd or kvm_intel anew"), unix.ENODEV
	}
	return Verdict{}, nil
}

// settling reports whether a host that is up so long still boots, and udev loads modules: the agent is up before KVM's
// is loaded, and VMs that it brought back meanwhile would be emulated for as long as they run.
func settling(up time.Duration) bool {
	_, err := os.Stat(udevQueue)
	return err == nil && up < mostSettle
}

func uptime() time.Duration {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return mostSettle
	}
	return time.Duration(now.Nano())
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

// Errors of a guest that came to no end: it stood still, or went on until there was no more time.
var (
	errLate = errors.New("a guest under KVM hangs")
	errSlow = errors.New("a guest under KVM is very slow")
)

// tryKVM boots the guest. late is called when it takes longer than a guest should.
func tryKVM(ctx context.Context, qemu, kernel, initrd string, c ProbeConfig, late func(slow string)) error {
	soon, limit := cmp.Or(c.Timeout, 10*time.Second), cmp.Or(c.Limit, 2*time.Minute)
	ctx, cancel := context.WithTimeout(ctx, mostSlow*max(soon, limit))
	defer cancel()
	still := time.AfterFunc(max(soon, limit), cancel) // a guest that prints is let go on
	defer still.Stop()
	cmd := exec.CommandContext(ctx, qemu, "-nodefaults", "-no-user-config", "-display", "none", "-machine",
		"pc,accel=kvm", "-cpu", "host", "-smp", "1", "-m", "512", "-serial", "stdio", "-no-reboot", "-kernel", kernel,
		"-initrd", initrd, "-append", "console=ttyS0 loglevel=7 panic=-1")
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
		if printed += len(line); line != "" {
			still.Reset(max(soon, limit))
		}
		reached = strings.Contains(line, userSpace)
		if err != nil {
			break
		}
	}
	slow.Stop()
	outOfTime, ranOut := ctx.Err() == context.DeadlineExceeded, ctx.Err() != nil
	cancel() // ends QEMU
	err = cmd.Wait()
	switch {
	case reached:
		return nil
	case ranOut && printed == 0:
		return fmt.Errorf("%w: it printed nothing within %s", errLate, limit)
	case outOfTime:
		return fmt.Errorf("%w: it did not reach user space within %s", errSlow, mostSlow*limit)
	case ranOut:
		return fmt.Errorf("%w: it did not reach user space, and printed nothing more for %s", errLate, limit)
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
	return cachedVerdict{BootID: strings.TrimSpace(string(boot)), Load: loadOfKVM(),
		Digest: hex.EncodeToString(sum.Sum(nil))}, nil
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
	return atomicfile.Write(path, append(b, '\n'), 0o600)
}
