package network_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/network"
	"github.com/grange-project/grange/internal/network/networktest"
	"github.com/grange-project/grange/internal/waittest"
)

// TestOpenVSwitch is a VLAN of a bridge of Open vSwitch, which forwards by itself here: the kernel need not know it.
func TestOpenVSwitch(t *testing.T) {
	needOpenVSwitch(t)
	trunks := map[string]farm.IDs{"ovs:sw0": {{First: 100, Last: 199}}, "ovs:sw9": {{First: 200, Last: 299}}}
	networktest.Run(t, networktest.Lab{Network: farm.NetworkVLAN(120),
		Setup:    ownRun,
		Begin:    openVSwitch,
		Show:     strings.Fields("ovs-vsctl --format=csv --columns=name,tag,other_config,external_ids list port"),
		Absent:   []farm.Network{farm.NetworkVLAN(99), farm.NetworkVLAN(200)},
		Settings: network.Settings{Host: farm.HostNetworks{Trunks: trunks}},
		Card:     hyper.Card{Type: hyper.BridgeCard, Bridge: "gvlan120", MAC: networktest.MAC}})
}

func needOpenVSwitch(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("ovs-vsctl"); err != nil {
		t.Skip("needs Open vSwitch")
	}
}

// ownRun keeps a host's Open vSwitch apart from that of the machine, in a mount namespace of its own.
var ownRun = []string{"mount --make-rprivate /", "mount -t tmpfs none /run", "mkdir /run/openvswitch"}

// fewVLANs are those of a host whose bridge sw0 of Open vSwitch has 1 to 9.
var fewVLANs = network.Settings{Host: farm.HostNetworks{Trunks: map[string]farm.IDs{"ovs:sw0": {{First: 1, Last: 9}}}}}

// TestOpenVSwitchLargeFrames: both ends of the cable, and the guests, have the MTU of the switch.
func TestOpenVSwitchLargeFrames(t *testing.T) {
	s := ovsHost(t)
	s.in(func() { openVSwitch(t) })
	s.run("ovs-vsctl --timeout=20 set interface sw0 mtu_request=9000")
	c, err := s.prepare("vlan:7", "grange-00000001", fewVLANs)
	if err != nil || c.MTU != 9000 {
		t.Fatalf("%+v, %v", c, err)
	}
	for _, name := range []string{"gvlan7", "gvlan7p", "gvlan7o"} {
		if out := s.run("ip link show dev " + name); !strings.Contains(out, " mtu 9000 ") {
			t.Error(out)
		}
	}
	s.release("vlan:7", "grange-00000001")
}

// openVSwitch runs Open vSwitch with a bridge sw0 on the host of this thread, for as long as the thread.
func openVSwitch(t *testing.T) {
	t.Helper()
	begin := func(argv ...string) *exec.Cmd {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		return cmd
	}
	run := func(argv ...string) {
		if out, err := begin(argv...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", argv, err, out)
		}
	}
	run("ovsdb-tool", "create", "/run/openvswitch/conf.db", "/usr/share/openvswitch/vswitch.ovsschema")
	for _, argv := range [][]string{
		{"ovsdb-server", "--remote=punix:/run/openvswitch/db.sock", "--unixctl=/run/openvswitch/db.ctl",
			"/run/openvswitch/conf.db"},
		{"ovs-vswitchd", "--disable-system", "--unixctl=/run/openvswitch/switch.ctl"},
	} {
		daemon := begin(argv...)
		if err := daemon.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { daemon.Process.Kill(); daemon.Wait() })
	}
	for deadline := time.Now().Add(waittest.Limit); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat("/run/openvswitch/db.sock"); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("Open vSwitch never listens")
		}
	}
	run("ovs-vsctl", "--timeout=20", "--no-wait", "init")
	run("ovs-vsctl", "--timeout=20", "add-br", "sw0", "--", "set", "bridge", "sw0", "datapath_type=netdev")
}

// TestNoOpenVSwitch: a host whose Open vSwitch does not answer, or has no such bridge, says so, and keeps nothing.
func TestNoOpenVSwitch(t *testing.T) {
	s := ovsHost(t)
	s.run(card...)
	before := s.links()
	settings := network.Settings{Host: farm.HostNetworks{Trunks: map[string]farm.IDs{
		"ovs:sw0": {{First: 100, Last: 199}}, "ovs:eno2": {{First: 200, Last: 299}}}}}
	refused := func(n farm.Network, code farm.Code, word string) {
		t.Helper()
		if _, err := s.prepare(n, "grange-00000001", settings); !farm.IsCode(err, code) ||
			!strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v, want %s with %q", n, err, code, word)
		}
		s.in(func() { network.Of(n).Release(t.Context(), "grange-00000001") })
		if after := s.links(); after != before {
			t.Errorf("%s: the host has\n%s\nand had\n%s", n, after, before)
		}
	}
	refused("vlan:120", farm.CodeNotCarried, "no bridge sw0")
	refused("vlan:220", network.CodeNotMade, "Open vSwitch")
	s.in(func() { openVSwitch(t) })
	before = s.links()
	refused("vlan:220", farm.CodeNotCarried, "eno2, which [network.trunks] names, is no bridge of Open vSwitch")
}

// TestOpenVSwitchForgets: the port of a cable that went with the host is gone when the next one is plugged in, and
// others' ports are not. A port that somebody took out is plugged in again.
func TestOpenVSwitchForgets(t *testing.T) {
	s := ovsHost(t)
	s.in(func() { openVSwitch(t) })
	ports := func() string { return strings.Join(strings.Fields(s.run("ovs-vsctl list-ports sw0")), " ") }
	s.run("ip link add name other type veth peer name its", "ovs-vsctl add-port sw0 other", "ip link del dev other")
	prepare := func(n farm.Network, name string) {
		t.Helper()
		if _, err := s.prepare(n, name, fewVLANs); err != nil {
			t.Fatal(err)
		}
	}
	prepare("vlan:7", "grange-00000001")
	s.run("ip link del dev gvlan7p", "ip link del dev gvlan7")
	prepare("vlan:8", "grange-00000002")
	if got := ports(); got != "gvlan8o other" {
		t.Errorf("plugged in are %s", got)
	}
	s.run("ovs-vsctl del-port gvlan8o")
	vms := []network.VM{{Name: "grange-00000002", Network: "vlan:8", PID: os.Getpid()}}
	s.in(func() { network.Of("vlan:8").Restore(t.Context(), vms, fewVLANs, func(network.VM, error) {}) })
	if got := ports(); got != "gvlan8o other" {
		t.Errorf("restored are %s", got)
	}
	s.release("vlan:8", "grange-00000002")
	if got := ports(); got != "other" {
		t.Errorf("left are %s", got)
	}
}

// ovsHost is a host on which Open vSwitch may run beside that of the machine.
func ovsHost(t *testing.T) *space {
	t.Helper()
	needOpenVSwitch(t)
	s := newSpace(t)
	s.in(func() {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			t.Error(err)
		}
	})
	s.run(ownRun...)
	return s
}

// TestOpenVSwitchCarries: guests of two hosts in one VLAN find each other, and one of another VLAN does not.
func TestOpenVSwitchCarries(t *testing.T) {
	a, b := ovsHost(t), ovsHost(t)
	a.run(fmt.Sprintf("ip link add eno2 type veth peer name eno2 netns %d", b.tid))
	for _, s := range []*space{a, b} {
		s.in(func() { openVSwitch(t) })
		s.run("ip link set dev eno2 up", "ovs-vsctl --timeout=20 add-port sw0 eno2")
	}
	one, _, other := guest(t, a, "vlan:7", 1, fewVLANs), guest(t, b, "vlan:7", 2, fewVLANs),
		guest(t, b, "vlan:8", 3, fewVLANs)
	for from, want := range map[*space]bool{one: true, other: false} {
		for _, to := range []string{"10.7.0.2", "fd07::2"} {
			from.dial(to, 2*time.Second) // nobody listens; who is there has told its MAC by then
			if found := from.run("ip neigh show to " + to); strings.Contains(found, "lladdr") != want {
				t.Errorf("neighbour %s: %q, want it found: %v", to, found, want)
			}
		}
	}
}
