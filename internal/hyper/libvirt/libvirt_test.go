package libvirt_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/hyper/hypertest"
	"github.com/grange-project/grange/internal/hyper/libvirt"
	"github.com/grange-project/grange/internal/hyper/libvirt/libvirttest"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/procstat"
)

// private is a libvirtd of this test's own.
type private struct {
	script, dir string
	small       string // a file system of 4 MiB
	runs        string // holds the machines' sockets
	images      string // readable by QEMU's user
	proxy       *libvirttest.Proxy
}

func startLibvirtd(t *testing.T) *private {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skip libvirt: libvirtd in a mount namespace needs root")
	}
	for _, tool := range []string{"libvirtd", "virsh", "qemu-system-x86_64"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("skip libvirt: %s is not installed", tool)
		}
	}
	script, err := filepath.Abs("../../../scripts/private-libvirtd")
	if err != nil {
		t.Fatal(err)
	}
	// Not t.TempDir: its name can be too long for a unix socket, and QEMU's user may not enter it.
	top, err := os.MkdirTemp("", "lv")
	if err != nil {
		t.Fatal(err)
	}
	p := &private{script: script, dir: filepath.Join(top, "d"), runs: filepath.Join(top, "run"),
		images: filepath.Join(top, "img"), small: filepath.Join(top, "small")}
	for _, dir := range []string{p.runs, p.images, p.small} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(top, 0o755); err != nil {
		t.Fatal(err)
	}
	// before libvirtd has a mount namespace of its own
	if err := syscall.Mount("small", p.small, "tmpfs", 0, "size=4m,mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.do(t, "down", "--all", p.dir)
		if err := syscall.Unmount(p.small, 0); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(p.dir, "log/libvirtd.log"))
			lines := strings.Split(string(log), "\n")
			// whole, it hides what failed
			t.Logf("the end of libvirtd.log:\n%s", strings.Join(lines[max(0, len(lines)-20):], "\n"))
		}
		if err := os.RemoveAll(top); err != nil {
			t.Error(err)
		}
	})
	p.do(t, libvirttest.Up(p.dir)...)
	if p.proxy, err = libvirttest.NewProxy(p.proxied(), filepath.Join(p.dir, "run/libvirt-sock")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.proxy.Close)
	return p
}

func (p *private) do(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, p.script, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("private-libvirtd %v: %v\n%s", args, err, out)
	}
}

func (p *private) open(t *testing.T) *libvirt.Libvirt { return p.openIn(t, p.runs) }

// openIn is another agent, where runs is not the first one's.
func (p *private) openIn(t *testing.T, runs string) *libvirt.Libvirt {
	t.Helper()
	c := libvirt.Config{Socket: p.proxied(), RunDir: runs, Accelerator: libvirttest.Accelerator()}
	if c.Accelerator == libvirt.TCG {
		c.WhyTCG = "tests do without"
	}
	h, err := libvirt.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// proxied is where libvirtd is reached through the proxy: beside its own socket, for that is where its run directory
// is.
func (p *private) proxied() string { return filepath.Join(p.dir, "run/proxy") }

// pid is libvirtd's process.
func (p *private) pid(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(p.dir, "libvirtd.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// kill ends libvirtd as a crash would.
func (p *private) kill(t *testing.T) (restart func()) {
	t.Helper()
	pid := p.pid(t)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	return func() {
		for { // it holds a lock on the file of its number to the last
			if _, err := procstat.Started(pid); err != nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		p.do(t, libvirttest.Up(p.dir)...)
	}
}

// Boot sectors do instead of a kernel: they show what the machine does within the firmware's tenth of a second.
var (
	// sleeps: sti; again: hlt; jmp again
	sleeps = []byte{0xfb, 0xf4, 0xeb, 0xfd}
	// powersOff: mov dx, 0x604 (PM1a control of a pc); mov ax, 0x2000 (sleep, type S5); out dx, ax; then as above
	powersOff = []byte{0xba, 0x04, 0x06, 0xb8, 0x00, 0x20, 0xef, 0xfb, 0xf4, 0xeb, 0xfd}
	// fills: ax and ds = 0; mov si, packet; again: mov ax, 0x4300 (write, INT 13h extensions); int 0x13; add the block
	// number of the packet, 64; jmp again; packet: 64 blocks of memory at 0x8000 to block 64
	fills = []byte{0x31, 0xc0, 0x8e, 0xd8, 0xbe, 0x1a, 0x7c, 0xb4, 0x43, 0xb0, 0x00, 0xcd, 0x13, 0x81, 0x06, 0x22, 0x7c,
		0x40, 0x00, 0x83, 0x16, 0x24, 0x7c, 0x00, 0xeb, 0xed, 0x10, 0x00, 0x40, 0x00, 0x00, 0x80, 0x00, 0x00, 0x40,
		0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00}
	// panics: mov dx, 0x505 (pvpanic); mov al, 1; out dx, al; then as above
	panics = []byte{0xba, 0x05, 0x05, 0xb0, 0x01, 0xee, 0xfb, 0xf4, 0xeb, 0xfd}
	// reboots: mov dx, 0xcf9 (reset control); mov al, 6; out dx, al; then as above
	reboots = []byte{0xba, 0xf9, 0x0c, 0xb0, 0x06, 0xee, 0xfb, 0xf4, 0xeb, 0xfd}
	// heedsButton: cli; mov dx, 0x602 (PM1a enable); mov ax, 0x100 (power button); out dx, ax; mov dx, 0x600 (PM1a
	// status); again: in ax, dx; test ah, 1; jz again; then powersOff
	heedsButton = append([]byte{0xfa, 0xba, 0x02, 0x06, 0xb8, 0x00, 0x01, 0xef, 0xba, 0x00, 0x06, 0xed, 0xf6, 0xc4,
		0x01, 0x74, 0xfa}, powersOff...)
)

// vmUser is the user that machines run as, who has no account: each of an agent's has one of its own.
const vmUser = 2113929300

func (p *private) machine(t *testing.T, code []byte) hyper.Machine {
	t.Helper()
	id := newID()
	sector := make([]byte, 1<<20)
	copy(sector, code)
	sector[510], sector[511] = 0x55, 0xaa
	disk := filepath.Join(p.images, id+".raw")
	if err := os.WriteFile(disk, sector, 0o644); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(p.runs, id)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return hyper.Machine{
		ID: id, Name: "grange-" + id[:8],
		Plan: farm.Plan{
			VCPUs:    []farm.CPUSet{farm.NewCPUSet(1), farm.NewCPUSet(0)},
			Emulator: farm.NewCPUSet(0),
			IOThread: farm.NewCPUSet(1),
			Guest:    farm.GuestTopology{Sockets: 1, Cores: 2, Threads: 1},
			Cells:    []farm.GuestCell{{VCPUs: farm.NewCPUSet(0, 1), Memory: 64 * farm.MiB, Node: 0}},
		},
		Disks:   []hyper.Disk{{Serial: "root", Path: disk, Format: "raw", ReadOnly: true}},
		Ports:   []hyper.Port{{Name: "grange.control", Path: filepath.Join(dir, "control")}},
		Console: filepath.Join(dir, "console"),
		UID:     vmUser, Group: vmUser,
		Metadata: []byte(`{"vm":"` + id + `"}`),
	}
}

// filling is a machine whose disk is larger than its file system.
func (p *private) filling(t *testing.T) hyper.Machine {
	m := p.machine(t, fills)
	disk := filepath.Join(p.small, m.ID+".raw")
	sector, err := os.ReadFile(m.Disks[0].Path)
	if err == nil {
		err = os.WriteFile(disk, sector[:512], 0o666)
	}
	if err == nil {
		err = errors.Join(os.Chmod(disk, 0o666), os.Truncate(disk, 64<<20))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(disk) })
	m.Disks[0].Path, m.Disks[0].ReadOnly = disk, false
	return m
}

func newID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// adapt returns how another libvirtd's machine is here: as its agent would make it, with disks that are empty.
func (p *private) adapt(t *testing.T) func(hyper.Machine) hyper.Machine {
	return func(m hyper.Machine) hyper.Machine {
		dir := filepath.Join(p.runs, m.ID)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		m.Console, m.Disks, m.Ports = filepath.Join(dir, "console"), slices.Clone(m.Disks), slices.Clone(m.Ports)
		m.UID, m.Group, m.Metadata = vmUser+1, vmUser+1, append(slices.Clone(m.Metadata), '\n')
		m.Plan.VCPUs = []farm.CPUSet{m.Plan.VCPUs[1], m.Plan.VCPUs[0]}
		for i, d := range m.Disks {
			info, err := os.Stat(d.Path)
			if err != nil {
				t.Fatal(err)
			}
			m.Disks[i].Path = filepath.Join(p.images, filepath.Base(d.Path))
			if err := errors.Join(os.WriteFile(m.Disks[i].Path, nil, 0o644), os.Truncate(m.Disks[i].Path, info.Size()),
				os.Chown(m.Disks[i].Path, int(m.UID), -1)); err != nil {
				t.Fatal(err)
			}
		}
		for i, port := range m.Ports {
			m.Ports[i].Path = filepath.Join(dir, filepath.Base(port.Path))
		}
		return m
	}
}

func TestContract(t *testing.T) {
	p, other := startLibvirtd(t), startLibvirtd(t)
	hypertest.Run(t, hypertest.Driver{
		Open:    func(t *testing.T) hyper.Hypervisor { return p.open(t) },
		Machine: func(t *testing.T) hyper.Machine { return p.machine(t, sleeps) },
		Ending:  func(t *testing.T) hyper.Machine { return p.machine(t, powersOff) },
		Polite:  func(t *testing.T) hyper.Machine { return p.machine(t, heedsButton) },
		Refused: func(t *testing.T) hyper.Machine {
			m := p.machine(t, sleeps)
			m.Disks[0].Path += ".missing"
			return m
		},
		Filling:   p.filling,
		Panicking: func(t *testing.T) hyper.Machine { return p.machine(t, panics) },
		Unwatched: p.unwatched,
		Rebooting: func(t *testing.T) hyper.Machine {
			m := p.machine(t, reboots)
			m.Reboots = true
			return m
		},
		Kill:  p.kill,
		Stick: p.stick,
		Other: func(t *testing.T) (hyper.Hypervisor, func(hyper.Machine) hyper.Machine) {
			return other.open(t), other.adapt(t)
		},
	})
}

// TestSweep makes an orphan: a machine whose libvirtd lost all memory of it.
func TestSweep(t *testing.T) {
	p := startLibvirtd(t)
	ctx := t.Context()
	h := p.open(t)
	ours, other := p.machine(t, sleeps), p.machine(t, sleeps)
	elsewhere := filepath.Join(filepath.Dir(p.runs), "other")
	if err := os.Mkdir(elsewhere, 0o755); err != nil {
		t.Fatal(err)
	}
	other.Ports, other.Console = nil, filepath.Join(elsewhere, "console")
	neighbour := p.openIn(t, elsewhere)
	if _, err := h.Start(ctx, ours); err != nil {
		t.Fatal(err)
	}
	if _, err := neighbour.Start(ctx, other); err != nil {
		t.Fatal(err)
	}
	if found, err := h.List(ctx); err != nil || len(found) != 1 || found[0].ID != ours.ID {
		t.Errorf("List is %v, %v; want our machine, and not the one of another agent", found, err)
	}
	restart := p.kill(t)
	status, err := filepath.Glob(filepath.Join(p.dir, "run/qemu/grange-*"))
	if err != nil || len(status) == 0 {
		t.Fatalf("libvirt keeps nothing of its domains: %v", err)
	}
	for _, path := range status {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	restart()
	again := p.open(t)
	if err := again.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := again.Observe(ctx, ours.ID); err == nil {
		t.Error("our orphan runs on")
	}
	if _, err := os.Stat(ours.Console); err == nil {
		t.Error("the orphan's socket is left")
	}
	if _, err := neighbour.Observe(ctx, other.ID); err != nil {
		t.Errorf("another agent's machine was swept away: %v", err)
	}
	if err := neighbour.Stop(ctx, other.ID); err != nil {
		t.Error(err)
	}
}

// TestService starts a machine whose vCPUs float, as a service: with a balloon, and its disk past the host's page
// cache.
func TestService(t *testing.T) {
	p := startLibvirtd(t)
	h := p.open(t)
	m := p.machine(t, sleeps)
	pool := farm.NewCPUSet(0, 1)
	m.Purpose, m.Plan.Floating, m.Plan.VCPUs, m.Plan.Emulator = farm.PurposeService, farm.NewCPUSet(0,
		1), []farm.CPUSet{pool, pool}, pool
	applied, err := h.Start(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if applied.Cache != "none" || applied.IO != "native" {
		t.Errorf("applied: %+v", applied)
	}
	seen, err := h.Observe(t.Context(), m.ID)
	if err != nil {
		t.Fatal(err)
	}
	if problems := numa.Check(m.Plan, seen, nil); len(problems) > 0 {
		t.Errorf("pins: %+v", problems)
	}
	if err := h.Resume(t.Context(), m.ID); err != nil {
		t.Error(err)
	}
	if err := h.Stop(t.Context(), m.ID); err != nil {
		t.Error(err)
	}
}

// TestNative has a real libvirt translate every golden domain into QEMU's command line: it takes more than the schema
// does.
func TestNative(t *testing.T) {
	p := startLibvirtd(t)
	files, err := filepath.Glob("testdata/*.xml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden domains: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".xml"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			// What this host has not, KVM that works or a second node, is taken out; the rest is all but the same.
			plain := filepath.Join(t.TempDir(), "domain.xml")
			if libvirttest.Accelerator() != libvirt.KVM {
				text = []byte(withoutKVM.Replace(string(text)))
			}
			if _, err := os.Stat("/sys/devices/system/node/node1"); err != nil {
				text = []byte(oneNode.Replace(string(text)))
			}
			if err := os.WriteFile(plain, text, 0o644); err != nil {
				t.Fatal(err)
			}
			uri := "qemu:///system?socket=" + filepath.Join(p.dir, "run/libvirt-sock")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			out, err := exec.CommandContext(ctx, "virsh", "-q", "-c", uri, "domxml-to-native", "qemu-argv",
				plain).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			wants := []string{"-S", "-no-user-config", "debug-threads=on"}
			if strings.Contains(string(text), "<nosharepages>") {
				wants = append(wants, "mem-merge=off")
			}
			if strings.Contains(string(text), `cache="none"`) {
				wants = append(wants, `"aio":"native"`, `"direct":true`)
			}
			for _, want := range wants {
				if !strings.Contains(string(out), want) {
					t.Errorf("QEMU's command line has no %s:\n%s", want, out)
				}
			}
		})
	}
}

var oneNode = strings.NewReplacer(`mode="strict" nodeset="0-1"`, `mode="strict" nodeset="0"`,
	`mode="strict" nodeset="0-2"`, `mode="strict" nodeset="0"`,
	`mode="strict" nodeset="1"`, `mode="strict" nodeset="0"`, `mode="strict" nodeset="2"`, `mode="strict" nodeset="0"`)

var withoutKVM = strings.NewReplacer(
	`type="kvm"`, `type="qemu"`, `mode="host-passthrough" check="none" migratable="off"`, `mode="maximum" check="none"`,
	`match="exact" mode="custom" check="partial"`, `match="exact" mode="custom" check="none"`,
	`mode="host-model" check="partial"`, `mode="maximum" check="none"`,
	`<timer name="kvmclock" present="yes"></timer>`, "", `<timer name="pit" tickpolicy="delay"></timer>`, "",
	`<hint-dedicated state="on"></hint-dedicated>`, "", `<poll-control state="on"></poll-control>`, "",
	`<pvspinlock state="off"></pvspinlock>`, "")

// TestNoRoot has a host without a user for QEMU: no libvirtd that would run QEMU as root comes up.
func TestNoRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skip libvirt: libvirtd in a mount namespace needs root")
	}
	script, err := filepath.Abs("../../../scripts/private-libvirtd")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	accounts := filepath.Join(dir, "passwd")
	if err := os.WriteFile(accounts, []byte("root:x:0:0:root:/root:/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	own, err := os.MkdirTemp("", "lv")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(own)
	out, err := exec.CommandContext(ctx, "unshare", "--mount", "sh", "-c",
		`mount --bind "$1" /etc/passwd && exec "$0" up --no-kvm "$2"`, script, accounts, own).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "there is no user for QEMU") {
		t.Errorf("libvirtd without a user for QEMU: %v\n%s", err, out)
	}
	if err == nil {
		exec.Command(script, "down", own).Run()
	}
}

// TestRootRefused has a libvirtd whose QEMU would be root: no machine is started, and the check says so.
func TestRootRefused(t *testing.T) {
	p := startLibvirtd(t)
	m := p.machine(t, sleeps)
	h := p.open(t)
	if c, err := h.Confinement(t.Context()); err != nil || c.UID == 0 || c.VMs != 0 {
		t.Errorf("with a user of its own: %+v, %v", c, err)
	}
	if _, err := h.Start(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if c, err := h.Confinement(t.Context()); err != nil || c.VMs != 1 || c.Filtered != 1 {
		t.Errorf("with a machine: %+v, %v", c, err)
	}
	if err := h.Stop(t.Context(), m.ID); err != nil {
		t.Error(err)
	}
	p.do(t, "down", p.dir)
	accounts, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	as := regexp.MustCompile(`(?m)^(libvirt-qemu|qemu):x:\d+:`).ReplaceAll(accounts, []byte("$1:x:0:"))
	file := filepath.Join(t.TempDir(), "passwd")
	if err := os.WriteFile(file, as, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c",
		`mount --bind "$1" /etc/passwd && exec "$0" up --no-kvm "$2"`, p.script, file, p.dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	h = p.open(t)
	_, start := h.Start(t.Context(), p.machine(t, sleeps))
	_, _, owner := h.QEMUOwner(t.Context())
	_, check := h.Confinement(t.Context())
	for what, err := range map[string]error{"Start": start, "QEMUOwner": owner, "Confinement": check} {
		if !farm.IsCode(err, hyper.CodeRootQEMU) {
			t.Errorf("%s: %v, want %s", what, err, hyper.CodeRootQEMU)
		}
	}
}
