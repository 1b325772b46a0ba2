package libvirt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/mounts"
)

// libvirt has virt-aa-helper write and compile a profile for each machine, which takes many times longer than QEMU
// needs, refuses our firmware, and leaves a file in /etc/apparmor.d/libvirt. So the agent loads a profile of its own
// before the machine is made: a few dozen rules for this one machine. libvirt puts QEMU into the profile libvirt-UUID
// whatever label a domain has (AppArmorSetSecurityProcessLabel), so that is its name; the static label only keeps
// libvirt from making one.

// appArmor is the model's name in libvirt's capabilities.
const appArmor = "apparmor"

// policyDir is the kernel's interface to AppArmor's policy.
const policyDir = "/sys/kernel/security/apparmor"

// confines reports whether libvirt confines machines by AppArmor.
func (h host) confines() bool { return slices.Contains(h.models, appArmor) }

// ownProfile reports whether machines get a profile from us.
func (h host) ownProfile() bool { return h.confines() && h.noProfile == "" }

// profileName is where libvirt puts the QEMU of a machine.
func profileName(id string) string { return "libvirt-" + id }

// places are directories of the host that a profile depends on.
type places struct {
	lib  string   // where libvirt keeps a directory for each machine
	pid  string   // where it keeps pid files
	huge []string // mount points of hugetlbfs
}

// profile is what the QEMU of a machine may do, as AppArmor's parser reads it. It is pure. Paths are without symbolic
// links, as the kernel sees them.
func (h host) profile(m hyper.Machine, in places) (string, error) {
	var b strings.Builder
	var bad error
	rule := func(rights, format string, path ...any) {
		for i, p := range path {
			quoted, err := quoteAppArmor(fmt.Sprint(p))
			bad = errors.Join(bad, err)
			path[i] = quoted
		}
		fmt.Fprintf(&b, "  \"%s\" %s,\n", fmt.Sprintf(format, path...), rights)
	}
	fmt.Fprintf(&b, "profile %s flags=(attach_disconnected) {\n%s", profileName(m.ID), everyQEMU)
	rule("rmix", "%s", h.emulator)
	own := "[0-9]*-" // libvirt's short name of a domain: its number, which nobody knows yet, and 20 characters
	short := m.Name[:min(len(m.Name), 20)]
	rule("rw", "%s/domain-"+own+"%s/{,**}", in.lib, short)
	rule("rwk", "%s/%s.pid", in.pid, m.Name)
	rule("w", "/var/log/libvirt/qemu/%s.log", m.Name)
	for _, mount := range in.huge {
		rule("rw", "%s/libvirt/qemu/"+own+"%s/{,**}", mount, short)
	}
	for _, path := range socketsOf(m) {
		rule("rw", "%s", path)
	}
	if m.Display != "" {
		rule("rw", "%s", m.Display)
	}
	if m.Boot.Kernel != "" {
		rule("r", "%s", m.Boot.Kernel)
		rule("r", "%s", m.Boot.Initrd)
	}
	for _, d := range m.Disks {
		rights := "rwk"
		if d.ReadOnly || d.CDROM {
			rights = "rk"
		}
		rule(rights, "%s", d.Path)
		if d.Base != "" {
			rule("rk", "%s", d.Base)
		}
	}
	for _, s := range m.Shares {
		rule("rw", "%s", s.Path)
	}
	b.WriteString(cards[m.Card.Type].rules)
	for _, path := range []string{m.Move.Memory, m.Move.Disks} {
		if path != "" {
			rule("rw", "%s", path)
		}
	}
	b.WriteString("  include if exists <local/grange-vm>\n}\n")
	return b.String(), bad
}

// everyQEMU is what all machines need. None of it is a machine's own, or can be changed.
const everyQEMU = `  # before QEMU runs: libvirt becomes its user
  capability setuid,
  capability setgid,
  # what is done to it is for others' rules to allow
  signal (receive),
  # under KVM a thread of QEMU's takes others out of the guest
  signal (send) peer=@{profile_name},
  ptrace (readby, tracedby),
  network unix stream,
  network unix dgram,
  unix (send, receive) type=stream addr=none peer=(label=libvirtd),
  unix (send, receive) type=stream addr=none peer=(label=/usr/sbin/libvirtd),
  unix (send, receive) type=stream addr=none peer=(label=virtqemud),

  /{usr/,}lib{,32,64}/** mr,
  /etc/ld.so.{cache,preload} r,
  /etc/localtime r,
  /usr/share/{zoneinfo,locale,crypto-policies}/** r,
  /etc/{ssl/openssl.cnf,gnutls/**,crypto-policies/**} r,
  /usr/share/{qemu,qemu-kvm,kvm,seabios,ipxe,vgabios,OVMF,ovmf,edk2*}/** rk,

  /dev/{null,zero,full,random,urandom,kvm} rw,
  owner /proc/[0-9]*/{auxv,maps,stat,status} r,
  owner /proc/[0-9]*/task/[0-9]*/{comm,status} rw,
  /proc/{cpuinfo,filesystems,meminfo,stat} r,
  /proc/sys/{crypto/fips_enabled,kernel/cap_last_cap,kernel/osrelease,vm/max_map_count,vm/overcommit_memory} r,
  # QEMU reads who has ended it: no
  deny /proc/[0-9]*/cmdline r,
  /sys/devices/system/{cpu,node}/{,**} r,
  /sys/kernel/mm/{hugepages,transparent_hugepage}/{,**} r,
  /sys/module/vhost/parameters/max_mem_regions r,
  /sys/devices/**/block/**/queue/* r,
`

// quoteAppArmor has a path stand for itself between quotes.
func quoteAppArmor(path string) (string, error) {
	if strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", fmt.Errorf("the path %q cannot be written in an AppArmor profile", path)
	}
	var b strings.Builder
	for _, r := range path {
		if strings.ContainsRune(`\*?[]{}^"@`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String(), nil
}

// hugeMounts are the mount points of hugetlbfs, from /proc/mounts.
func hugeMounts(table string) []string {
	var points []string
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "hugetlbfs" {
			points = append(points, mounts.Unescape(f[1]))
		}
	}
	return points
}

// confine loads the profile of a machine that is about to be made. Where it cannot, h says why, and libvirt makes one.
func (l *Libvirt) confine(ctx context.Context, h *host, m hyper.Machine) {
	if !h.ownProfile() {
		return
	}
	// without huge pages a machine that wants them fails, and says what it was denied
	mounts, _ := os.ReadFile("/proc/mounts")
	in := places{real(libDir(l.cfg.Socket)), real(string(l.pids)), hugeMounts(string(mounts))}
	text, err := h.profile(resolved(m), in)
	if err == nil {
		err = loadProfile(ctx, text)
	}
	if err != nil && ctx.Err() == nil {
		h.noProfile = fmt.Sprint(err)
	}
}

// resolved is the machine with the paths that the kernel sees.
func resolved(m hyper.Machine) hyper.Machine {
	m.Disks, m.Ports, m.Shares = slices.Clone(m.Disks), slices.Clone(m.Ports), slices.Clone(m.Shares)
	m.Boot.Kernel, m.Boot.Initrd, m.Console = real(m.Boot.Kernel), real(m.Boot.Initrd), real(m.Console)
	m.Display = real(m.Display)
	for i := range m.Disks {
		m.Disks[i].Path, m.Disks[i].Base = real(m.Disks[i].Path), real(m.Disks[i].Base)
	}
	for i := range m.Ports {
		m.Ports[i].Path = real(m.Ports[i].Path)
	}
	for i := range m.Shares {
		m.Shares[i].Path = real(m.Shares[i].Path)
	}
	if m.Move.Memory != "" { // their directory is made for each move
		dir := filepath.Dir(m.Move.Memory)
		dir = filepath.Join(real(filepath.Dir(dir)), filepath.Base(dir))
		m.Move = hyper.MoveSockets{Memory: filepath.Join(dir, filepath.Base(m.Move.Memory)),
			Disks: filepath.Join(dir, filepath.Base(m.Move.Disks))}
	}
	return m
}

// real is a path without symbolic links; of a file that is not there yet, its directory's.
func real(path string) string {
	if path == "" {
		return ""
	}
	if p, err := filepath.EvalSymlinks(path); err == nil {
		return p
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path))
	}
	return path
}

// parserTimeout is for a few dozen rules, which take 10 ms, on a host that is very busy.
const parserTimeout = 20 * time.Second

// loadProfile has the kernel enforce a profile. It goes by standard input: there is no file, and none is left. The
// parser simplifies expressions before it makes its automaton, which for rules as few as these takes twice as long as
// all the rest, and changes nothing of what they mean.
func loadProfile(ctx context.Context, text string) error {
	ctx, cancel := context.WithTimeout(ctx, parserTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, appArmorParser, "--replace", "--skip-cache", "--quiet", "--jobs=1",
		"--Optimize=no-expr-simplify")
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.Dir, cmd.Stdin, cmd.WaitDelay = "/", strings.NewReader(text), time.Second
	var complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &complaint, &complaint
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %s", filepath.Base(appArmorParser), firstLine(complaint.String(), err))
	}
	return nil
}

// appArmorParser is where Debian, Ubuntu and openSUSE have it; /sbin is a link on all that are not too old.
const appArmorParser = "/sbin/apparmor_parser"

// unloadProfile has the kernel forget the profile of a machine. Its QEMU must have ended: it would go on without one.
func unloadProfile(id string) error {
	err := os.WriteFile(filepath.Join(policyDir, ".remove"), []byte(profileName(id)), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is not loaded, or AppArmor is not there any more
	}
	return err
}

// cannotConfine returns why the agent cannot load profiles, and what to try; "": it can.
func cannotConfine() string {
	if _, err := os.Stat(appArmorParser); err != nil {
		return "no " + appArmorParser + "; try: apt install apparmor"
	}
	if err := unix.Access(filepath.Join(policyDir, ".replace"), unix.W_OK); err != nil {
		return fmt.Sprintf("the agent cannot write %s/.replace: %v; try: run it by its unit", policyDir, err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil || !hasCapability(string(status), unix.CAP_MAC_ADMIN) {
		return "the agent has no CAP_MAC_ADMIN; try: run it by its unit"
	}
	return ""
}

// hasCapability reports whether a process's status tells of an effective capability.
func hasCapability(status string, capability int) bool {
	_, after, _ := strings.Cut(status, "\nCapEff:")
	var mask uint64
	_, err := fmt.Sscanf(strings.TrimSpace(after), "%x", &mask)
	return err == nil && mask&(1<<capability) != 0
}

// confinement returns what confines a machine's QEMU, as the kernel has it. One that should be in our profile and is
// not must not run.
func (h host) confinement(pid int, id string) (string, error) {
	label, enforced := securityLabel(pid)
	switch {
	case h.ownProfile() && (label != profileName(id) || !enforced):
		return "", &farm.Error{Kind: farm.Internal, Code: hyper.CodeRefused,
			Message: fmt.Sprintf("AppArmor does not confine QEMU: its profile is %q (enforced: %t)", label, enforced),
			Hint:    "see what changes the AppArmor profiles " + profileName("*") + " on this host"}
	case h.ownProfile():
		return "AppArmor, a profile of grange", nil
	case h.confines() && enforced:
		return "AppArmor, a profile of libvirt", nil
	case slices.Contains(h.models, "selinux"):
		return "SELinux, " + label, nil
	}
	return "", nil
}

// securityLabel is what the kernel's security module calls a process; "" where there is none.
func securityLabel(pid int) (label string, enforced bool) {
	for _, file := range []string{"attr/apparmor/current", "attr/current"} {
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file)); err == nil {
			return parseLabelText(string(text))
		}
	}
	return "", false
}

// parseLabelText reads AppArmor's "NAME (enforce)", or SELinux's context.
func parseLabelText(text string) (label string, enforced bool) {
	label, mode, _ := strings.Cut(strings.Trim(text, "\x00\n"), " (")
	return label, mode == "enforce)"
}
