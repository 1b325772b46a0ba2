package libvirt

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

func confinedMachine() hyper.Machine {
	return hyper.Machine{ID: "0b7c8a52-6f1e-4f0e-9a3c-1d2e3f405162", Name: "grange-0b7c8a526f1e4f0e",
		Boot:    hyper.Boot{Kernel: "/i/vmlinux", Initrd: "/i/initrd"},
		Console: "/run/g/vm/a/console", Ports: []hyper.Port{{Name: "p", Path: "/run/g/vm/a/p"}},
		Disks: []hyper.Disk{
			{Path: "/d/a/root.qcow2", Format: "qcow2", Base: "/i/base.img"},
			{Path: "/d/a/seed.iso", Format: "raw", CDROM: true},
		}}
}

var somewhere = places{lib: "/var/lib/libvirt/qemu", pid: "/run/libvirt/qemu", huge: []string{"/dev/hugepages"}}

// TestProfile: the rules of one machine, besides those of all, are its own files; and what it has decides what else
// there is.
func TestProfile(t *testing.T) {
	h := host{emulator: "/usr/bin/qemu", models: []string{appArmor}}
	rules := func(change func(*hyper.Machine)) []string {
		m := confinedMachine()
		if change != nil {
			change(&m)
		}
		text, err := h.profile(m, somewhere)
		if err != nil {
			t.Fatal(err)
		}
		head := "profile libvirt-" + m.ID + " flags=(attach_disconnected) {\n" + everyQEMU
		rest, ok := strings.CutPrefix(text, head)
		if !ok {
			t.Fatalf("the profile does not begin with %q:\n%s", head, text)
		}
		return strings.Split(strings.TrimSuffix(rest, "\n}\n"), "\n")
	}
	want := []string{
		`  "/usr/bin/qemu" rmix,`,
		`  "/var/lib/libvirt/qemu/domain-[0-9]*-grange-0b7c8a526f1e4/{,**}" rw,`,
		`  "/run/libvirt/qemu/grange-0b7c8a526f1e4f0e.pid" rwk,`,
		`  "/var/log/libvirt/qemu/grange-0b7c8a526f1e4f0e.log" w,`,
		`  "/dev/hugepages/libvirt/qemu/[0-9]*-grange-0b7c8a526f1e4/{,**}" rw,`,
		`  "/run/g/vm/a/console" rw,`, `  "/run/g/vm/a/p" rw,`,
		`  "/i/vmlinux" r,`, `  "/i/initrd" r,`,
		`  "/d/a/root.qcow2" rwk,`, `  "/i/base.img" rk,`, `  "/d/a/seed.iso" rk,`,
		`  include if exists <local/grange-vm>`,
	}
	if got := rules(nil); !slices.Equal(got, want) {
		t.Errorf("rules:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for rule, change := range map[string]func(*hyper.Machine){
		"  network inet dgram,": func(m *hyper.Machine) { m.Card.Type = hyper.UserCard },
		"  /dev/vhost-net rw,":  func(m *hyper.Machine) { m.Card = hyper.Card{Type: hyper.BridgeCard, Bridge: "br0"} },
		"  /dev/tap[0-9]* rw,":  func(m *hyper.Machine) { m.Card = hyper.Card{Type: hyper.MacvtapCard, Source: "eno2"} },
		`  "/run/g/move/disks" rw,`: func(m *hyper.Machine) {
			m.Move = hyper.MoveSockets{Memory: "/run/g/move/memory", Disks: "/run/g/move/disks"}
		},
		`  "/i/a\?\{b\}" r,`: func(m *hyper.Machine) { m.Boot.Kernel = "/i/a?{b}" },
	} {
		if !slices.Contains(rules(change), rule) {
			t.Errorf("no rule %q", rule)
		}
		if slices.Contains(want, rule) {
			t.Errorf("every machine has the rule %q", rule)
		}
	}
	m := confinedMachine()
	m.Disks[0].Path = "/d/x,\n/** rw,"
	if _, err := h.profile(m, somewhere); err == nil {
		t.Error("a path with a line of its own is taken")
	}
}

// TestProfileCompiles holds profiles to AppArmor's own parser, which needs no AppArmor in the kernel for that.
func TestProfileCompiles(t *testing.T) {
	if _, err := os.Stat(appArmorParser); err != nil {
		t.Skipf("skip compiling: %v", err)
	}
	m := confinedMachine()
	m.Card.Type, m.Purpose, m.Disks[0].Path = hyper.UserCard, farm.PurposeService, `/d/a "b" *?[x]{y}^@{HOME}\z`
	text, err := host{emulator: "/usr/bin/qemu"}.profile(m, somewhere)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(appArmorParser, "--skip-kernel-load", "--skip-cache", "--debug")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, out, text)
	}
}

// TestConfines: who makes the profile decides what the domain says.
func TestConfines(t *testing.T) {
	for name, c := range map[string]struct {
		host   host
		label  bool // of ours
		warned bool
		qboot  bool
	}{
		"no AppArmor":          {host: host{}, qboot: true},
		"SELinux":              {host: host{models: []string{"selinux"}}, qboot: true},
		"AppArmor":             {host: host{models: []string{appArmor}}, label: true, qboot: true},
		"AppArmor, by libvirt": {host: host{models: []string{appArmor}, noProfile: "because"}, warned: true},
	} {
		c.host.accel, c.host.qboot = KVM, "/q"
		m := confinedMachine()
		m.Plan = farm.Plan{VCPUs: []farm.CPUSet{{}}, Guest: farm.GuestTopology{Sockets: 1, Cores: 1, Threads: 1},
			Cells: []farm.GuestCell{{VCPUs: farm.NewCPUSet(0), Memory: farm.GiB}}, Floating: farm.NewCPUSet(0)}
		text, applied, err := c.host.domain(m)
		if err != nil {
			t.Fatal(err)
		}
		about, err := describe(text)
		if err != nil || about.profile != c.label || strings.Contains(text, "libvirt-"+m.ID) != c.label {
			t.Errorf("%s: profile of ours: %t, %v\n%s", name, about.profile, err, text)
		}
		warned := slices.ContainsFunc(applied.Warnings, func(w string) bool { return strings.Contains(w, "because") })
		if warned != c.warned || strings.Contains(text, ">/q<") != c.qboot {
			t.Errorf("%s: warnings %q\n%s", name, applied.Warnings, text)
		}
	}
}

func TestSecurityLabel(t *testing.T) {
	for text, want := range map[string]struct {
		label    string
		enforced bool
	}{
		"libvirt-1 (enforce)\n":         {"libvirt-1", true},
		"libvirt-1 (complain)\n":        {"libvirt-1", false},
		"unconfined\n":                  {"unconfined", false},
		"system_u:system_r:svirt_t\x00": {"system_u:system_r:svirt_t", false},
		"":                              {},
	} {
		if label, enforced := parseLabelText(text); label != want.label || enforced != want.enforced {
			t.Errorf("%q: %q, %t", text, label, enforced)
		}
	}
	// This process is confined by nothing of ours, so nothing may say so.
	if _, err := (host{models: []string{appArmor}}).confinement(os.Getpid(), "1"); err == nil {
		t.Error("a process without the profile passes for one that has it")
	}
}

func TestHugeMounts(t *testing.T) {
	got := hugeMounts("proc /proc proc rw 0 0\nhugetlbfs /dev/hugepages hugetlbfs rw 0 0\nnone /mnt/1\\040G " +
		"hugetlbfs rw,pagesize=1024M 0 0\n")
	if want := []string{"/dev/hugepages", "/mnt/1 G"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestHasCapability(t *testing.T) {
	for status, want := range map[string]bool{
		"Name:\tx\nCapEff:\t000001ffffffffff\nCapBnd:\t0\n": true,
		"Name:\tx\nCapEff:\t000001fdffffffff\nCapBnd:\t0\n": false,
		"": false,
	} {
		if got := hasCapability(status, 33); got != want {
			t.Errorf("%q: %t", status, got)
		}
	}
}
