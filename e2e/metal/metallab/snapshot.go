package metallab

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Options of a host.
type Options struct {
	Suite string   // of Debian; "": bookworm
	Debs  []string // packages that are installed, with an agent that has run a job; none: Debian as it is installed
	Name  string   // of the host; "": host
	LAN   LAN      // that it shares with others; the zero value: its own
	Peer  int      // its last number there, in 10.77.0.0/24; 0: none. Hosts with one have identities of their own
	Keep  bool     // runs on when this program ends
	// Emulator is the suite whose QEMU it runs on; "": QEMU11.
	Emulator string
}

// Start returns a host that is up. The first one of its kind boots, and is kept as a snapshot; the others are started
// from that.
func (l *Lab) Start(ctx context.Context, o Options) (*Host, error) {
	if o.Suite == "" {
		o.Suite = Suites[0]
	}
	if o.Name == "" {
		o.Name = "host"
	}
	if o.Emulator == "" {
		o.Emulator = QEMU11
	}
	snapshot, uses, err := l.snapshot(ctx, o)
	if err != nil {
		return nil, err
	}
	h := &Host{Name: o.Name, lab: l, lan: o.LAN, uses: uses, emulator: o.Emulator}
	if err := os.MkdirAll(l.path("run"), 0o700); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	if h.Dir, err = os.MkdirTemp(l.path("run"), o.Name+"-"); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	if err := h.restore(ctx, snapshot, memory{dir: snapshot}, o.Keep); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	if err := h.identify(ctx, o); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// restore starts a host as a snapshot left it.
func (h *Host) restore(ctx context.Context, snapshot string, m memory, keep bool) (err error) {
	if err := overlay(ctx, h.Dir, "", snapshot); err != nil {
		return err
	}
	if h.lan.port == 0 {
		if h.lan, err = NewLAN(); err != nil {
			return err
		}
	}
	if err := h.qemu(ctx, m, keep, "-incoming", "defer"); err != nil {
		return err
	}
	if err := h.monitor.shareMemory(); err != nil {
		return err
	}
	if err := h.monitor.run("migrate-incoming", map[string]any{"uri": "exec:cat " + snapshot + "/state"},
		nil); err != nil {
		return err
	}
	if err := h.monitor.migrated(ctx); err != nil {
		return err
	}
	return h.monitor.run("cont", nil, nil)
}

// identify gives a restored host what it must not share with its snapshot: the time, what randomness comes from, its
// names.
func (h *Host) identify(ctx context.Context, o Options) error {
	seed := make([]byte, 32)
	rand.Read(seed)
	script := fmt.Sprintf(`set -e
date -s @%d >/dev/null
perl -e 'open F, ">", "/dev/random"; syswrite F, pack("H*", "%x"); ioctl F, 0x5207, 0' # RNDRESEEDCRNG
hostnamectl hostname %s
sed -i 's/^127.0.1.1 .*/127.0.1.1 %s/' /etc/hosts
`, time.Now().Unix(), seed, o.Name, o.Name)
	if o.Peer != 0 {
		script += fmt.Sprintf(`ip link set enp0s3 down
ip link set enp0s3 address 52:54:00:aa:01:%02x
ip link set enp0s3 up
ip address add 10.77.0.%d/24 dev enp0s3
tr -d - </proc/sys/kernel/random/uuid >/etc/machine-id
systemctl restart systemd-journald
sed -i '/^host_uuid/d' /etc/libvirt/libvirtd.conf
echo "host_uuid = \"$(cat /proc/sys/kernel/random/uuid)\"" >>/etc/libvirt/libvirtd.conf
systemctl restart libvirtd
if systemctl is-active -q grange-agent; then systemctl restart grange-agent; fi
`, o.Peer, o.Peer)
	}
	_, err := h.Run(ctx, script)
	return err
}

// snapshot returns the directory of one that hosts of this kind start from, and files that keep it as long as they are
// open.
func (l *Lab) snapshot(ctx context.Context, o Options) (string, []*os.File, error) {
	unlock, err := l.lock(o.Suite + ".snapshot.lock")
	if err != nil {
		return "", nil, err
	}
	defer unlock()
	snapshot, err := l.made(ctx, o)
	if err != nil {
		return "", nil, err
	}
	uses, err := use(snapshot)
	return snapshot, uses, err
}

// made returns the directory of a snapshot, which it makes where there is none.
func (l *Lab) made(ctx context.Context, o Options) (string, error) {
	boot, err := l.disk(ctx, o.Suite)
	if err != nil {
		return "", err
	}
	version, err := l.emulator(ctx, o.Emulator).command("--version").Output()
	if err != nil {
		return "", err
	}
	machine := strings.Join(machineArgs("", memory{}, 0, LAN{}), " ")
	kind := o.Suite
	if o.Emulator != QEMU11 { // beside those of the other
		kind = "on-" + o.Emulator + "-" + o.Suite
	}
	booted, err := l.make(ctx, o.Emulator, kind+"-booted", digest(boot, string(version), machine),
		func(ctx context.Context, h *Host) error {
			return h.firstBoot(ctx, boot)
		})
	if err != nil || len(o.Debs) == 0 {
		return booted, err
	}
	sums, err := digestFiles(o.Debs)
	if err != nil {
		return "", err
	}
	return l.make(ctx, o.Emulator, kind+"-installed", digest(booted, sums), func(ctx context.Context, h *Host) error {
		return h.firstInstall(ctx, booted, o.Debs)
	})
}

// Files of a snapshot: a lock that its users share, and the path of the snapshot that its disks lie over.
const (
	useFile  = "use.lock"
	baseFile = "base"
)

// use keeps a snapshot, and those that its disks lie over, from being removed until the files are closed. QEMU inherits
// them: a host may outlive the program that started it.
func use(snapshot string) (files []*os.File, err error) {
	for dir := snapshot; dir != ""; {
		f, err := os.OpenFile(filepath.Join(dir, useFile), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return files, err
		}
		files = append(files, f)
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH); err != nil {
			return files, err
		}
		base, err := os.ReadFile(filepath.Join(dir, baseFile))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return files, err
		}
		dir = string(base)
	}
	return files, nil
}

// inUse reports whether a host runs from a snapshot.
func inUse(snapshot string) bool {
	f, err := os.OpenFile(filepath.Join(snapshot, useFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

// make brings a host up by a function, and stops it as a snapshot, unless there is one with this digest. Others of the
// kind are removed, for they are of older disks or packages, unless hosts run from them.
func (l *Lab) make(ctx context.Context, emulator, kind, digest string,
	up func(context.Context, *Host) error) (string, error) {
	snapshot := l.path(kind + "-" + digest)
	if _, err := os.Stat(snapshot); err == nil {
		return snapshot, nil
	}
	fmt.Fprintf(os.Stderr, "making the snapshot of a host, %s; this takes a minute or two\n", kind)
	old, err := filepath.Glob(l.path(kind + "-*"))
	if err != nil {
		return "", err
	}
	for _, dir := range old {
		if inUse(dir) {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			return "", err
		}
	}
	part := snapshot + ".part"
	if err := os.Mkdir(part, 0o700); err != nil {
		return "", err
	}
	h := &Host{Name: kind, Dir: part, lab: l, emulator: emulator}
	if h.lan, err = NewLAN(); err == nil {
		err = up(ctx, h)
	}
	if err == nil {
		err = h.freeze(ctx)
	}
	h.PowerLoss()
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(part))
	}
	return snapshot, os.Rename(part, snapshot)
}

func (h *Host) firstBoot(ctx context.Context, boot string) error {
	if err := overlay(ctx, h.Dir, boot, ""); err != nil {
		return err
	}
	if err := h.qemu(ctx, memory{h.Dir, true}, false); err != nil {
		return err
	}
	return h.settled(ctx)
}

func (h *Host) firstInstall(ctx context.Context, booted string, debs []string) error {
	for node := range 2 {
		name := fmt.Sprintf("%d.ram", node)
		if out, err := exec.CommandContext(ctx, "cp", "--sparse=always", filepath.Join(booted, name),
			h.path(name)).CombinedOutput(); err != nil {
			return fmt.Errorf("cp: %w: %s", err, out)
		}
	}
	if err := os.WriteFile(h.path(baseFile), []byte(booted), 0o600); err != nil {
		return err
	}
	if err := h.restore(ctx, booted, memory{h.Dir, true}, false); err != nil {
		return err
	}
	if err := h.identify(ctx, Options{Name: "host"}); err != nil {
		return err
	}
	return h.Install(ctx, debs...)
}

// freeze writes the host's state beside its memory. It does not run after that.
func (h *Host) freeze(ctx context.Context) error {
	if _, err := h.Run(ctx, "sync; fstrim / || true"); err != nil {
		return err
	}
	h.hangUp()
	if err := h.monitor.run("stop", nil, nil); err != nil {
		return err
	}
	if err := h.monitor.shareMemory(); err != nil {
		return err
	}
	if err := h.monitor.run("migrate", map[string]any{"uri": "exec:cat >" + h.path("state")}, nil); err != nil {
		return err
	}
	return h.monitor.migrated(ctx)
}

func digest(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\n")))
	return hex.EncodeToString(sum[:8])
}

func digestFiles(files []string) (string, error) {
	sums := sha256.New()
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		_, err = io.Copy(sums, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sums.Sum(nil)), nil
}
