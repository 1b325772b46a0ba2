package libvirt

import (
	"errors"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// moved is a cloud VM of a service cell on one host, and as libvirt describes it on another, where it has run.
func moved(t *testing.T) (own, seen string) {
	t.Helper()
	m := hyper.Machine{ID: "3f1c2a60-0000-4000-8000-000000000001", Name: "grange-3f1c2a60-0000", UID: 2113929301,
		Group: 2113929301, Purpose: farm.PurposeService,
		Plan: farm.Plan{VCPUs: []farm.CPUSet{farm.NewCPUSet(2)}, Emulator: farm.NewCPUSet(3),
			Guest: farm.GuestTopology{Sockets: 1, Cores: 1, Threads: 1},
			Cells: []farm.GuestCell{{VCPUs: farm.NewCPUSet(0), Memory: farm.GiB, Node: 1}}},
		Disks: []hyper.Disk{{Serial: "root", Path: "/here/root.qcow2", Format: "qcow2"}},
		Card:  hyper.Card{Type: hyper.BridgeCard, Bridge: "br-here", MAC: "52:54:0a:66:00:14"},
		Ports: []hyper.Port{{Name: "org.grange.control", Path: "/here/control"}}, Console: "/here/console"}
	text, _, err := host{accel: KVM, kvm: true, numa: true, emulator: "/usr/bin/qemu-here",
		label: "+64055:+64055"}.domain(m)
	if err != nil {
		t.Fatal(err)
	}
	seen = text
	for old, other := range map[string]string{
		"/here/": "/there/", "br-here": "br-there", "qemu-here": "qemu-there", "+2113929301": "+2113929388",
		`machine="q35"`: `machine="pc-q35-7.2"`, `cpuset="2"`: `cpuset="7"`, `nodeset="1"`: `nodeset="0"`,
		`<cpu mode="host-model" check="partial">`: `<cpu mode="custom" match="exact" check="full"><model fallback="forbid">EPYC-Rome</model><vendor>AMD</vendor><feature policy="disable" name="rdpid"></feature>`,
		`<controller type="usb"`:                  `<input type="mouse" bus="ps2"></input><audio id="1" type="none"></audio><controller type="pci" index="0" model="pcie-root"></controller><controller type="usb"`,
	} {
		if !strings.Contains(seen, old) {
			t.Fatalf("nothing to replace: %s in\n%s", old, seen)
		}
		seen = strings.ReplaceAll(seen, old, other)
	}
	return text, seen
}

func TestFit(t *testing.T) {
	own, seen := moved(t)
	got, err := fit(own, []byte(seen))
	if err != nil {
		t.Fatal(err)
	}
	// the guest's
	for _, want := range []string{`machine="pc-q35-7.2"`, "EPYC-Rome", `name="rdpid"`, `check="full"`,
		`model="pcie-root"`,
		// this host's
		"/here/root.qcow2", "/here/control", "/here/console", "br-here", "qemu-here", "+2113929301", `cpuset="2"`,
		`nodeset="1"`} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %s", want)
		}
	}
	for _, other := range []string{"there", "2113929388", `cpuset="7"`, "host-model"} {
		if strings.Contains(got, other) {
			t.Errorf("has %s of the other host", other)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

// TestFitMTU: a guest that was told no MTU is told none here, and one that was is told this host's.
func TestFitMTU(t *testing.T) {
	own, seen := moved(t)
	told := func(text, size string) string {
		const model = `<model type="virtio"></model>`
		return strings.Replace(text, model, `<mtu size="`+size+`"></mtu>`+model, 1)
	}
	for name, c := range map[string]struct {
		seen string
		want bool
	}{"not told": {seen, false}, "told": {told(seen, "9000"), true}, "told less": {told(seen, "68"), true}} {
		got, err := fit(told(own, "9000"), []byte(c.seen))
		if err != nil || strings.Contains(got, `<mtu size="9000">`) != c.want || strings.Contains(got, `size="68"`) {
			t.Errorf("%s: %v\n%s", name, err, got)
		}
	}
}

// TestFitHostile has a host that is not ours describe its machine: what it could gain by it on this host is refused, or
// left out.
func TestFitHostile(t *testing.T) {
	own, seen := moved(t)
	device := func(text string) string { return strings.Replace(seen, "</devices>", text+"</devices>", 1) }
	for name, c := range map[string]struct {
		seen string
		code farm.Code
	}{
		"not XML": {"<domain", hyper.CodeDevices},
		"nothing": {"<domain></domain>", hyper.CodeDevices},
		"another VM": {strings.Replace(seen, "3f1c2a60-0000-4000-8000-000000000001",
			"3f1c2a60-0000-4000-8000-000000000002", 1), hyper.CodeDevices},
		"another machine type": {strings.Replace(seen, "pc-q35-7.2", "pc-q35-7.2,accel=tcg", 1), hyper.CodeDevices},
		"option in a feature":  {strings.Replace(seen, `name="rdpid"`, `name="rdpid,x=y"`, 1), hyper.CodeDevices},
		"option in a model":    {strings.Replace(seen, "EPYC-Rome", "EPYC-Rome,x=y", 1), hyper.CodeDevices},
		"passed through":       {strings.Replace(seen, `mode="custom"`, `mode="host-passthrough"`, 1), hyper.CodeCPU},
		"a device of the host": {device(
			`<hostdev mode="subsystem" type="pci"><source><address domain="0" bus="1" slot="0" function="0"></address></source></hostdev>`), hyper.CodeDevices},
		"a directory": {device(
			`<filesystem type="mount"><source dir="/"></source><target dir="root"></target></filesystem>`),
			hyper.CodeDevices},
		"a random device": {device(`<rng model="virtio"><backend model="random">/etc/shadow</backend></rng>`),
			hyper.CodeDevices},
		"a second disk": {device(
			`<disk type="file" device="disk"><source file="/etc/shadow"></source><target dev="vdb" bus="virtio"></target></disk>`), hyper.CodeDevices},
		"a second card": {device(
			`<interface type="bridge"><mac address="52:54:0a:66:00:15"></mac><source bridge="br-admin"></source></interface>`), hyper.CodeDevices},
		"another MAC": {strings.Replace(seen, "52:54:0a:66:00:14", "52:54:0a:66:00:15", 1), hyper.CodeDevices},
		"another channel": {strings.Replace(seen, `name="org.grange.control"`, `name="org.grange.job"`, 1),
			hyper.CodeDevices},
		"a controller's file": {device(`<controller type="scsi" index="1" model="virtio-scsi"></controller>`),
			hyper.CodeDevices},
		"a network device in": {device(
			`<input type="evdev" bus="virtio"><source dev="/dev/input/event0"></source></input>`), hyper.CodeDevices},
	} {
		if c.seen == seen {
			t.Errorf("%s: nothing was changed", name)
		}
		_, err := fit(own, []byte(c.seen))
		if e := new(farm.Error); !errors.As(err, &e) || e.Code != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	for name, text := range map[string]string{
		"a program":     strings.Replace(seen, "qemu-there", "/tmp/evil", 1),
		"a kernel":      strings.Replace(seen, "<os>", "<os><kernel>/etc/shadow</kernel>", 1),
		"a disk's file": strings.Replace(seen, "/there/root.qcow2", "/etc/shadow", 1),
		"a user":        strings.Replace(seen, "+2113929388", "+0", 1),
		"QEMU's own line": strings.Replace(seen, "</domain>",
			`<commandline xmlns="http://libvirt.org/schemas/domain/qemu/1.0"><arg value="/tmp/evil"></arg></commandline></domain>`, 1),
	} {
		got, err := fit(own, []byte(text))
		if err != nil || strings.Contains(got, "evil") || strings.Contains(got, "shadow") ||
			strings.Contains(got, "+0:") {
			t.Errorf("%s: %v\n%s", name, err, got)
		}
	}
}
