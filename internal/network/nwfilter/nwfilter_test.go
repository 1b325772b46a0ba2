package nwfilter_test

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/network/networktest"
	"github.com/grange-project/grange/internal/network/nwfilter"
)

// host is a network of its own with the bridge br0.
type host struct{ *testing.T }

func newHost(t *testing.T) host {
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes a network namespace")
	}
	// The thread is not unlocked: it ends with the test, and the namespace with it.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	h := host{t}
	h.run("ip", "link", "add", "br0", "type", "bridge")
	return h
}

func (h host) run(argv ...string) string {
	h.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		h.Fatalf("%v: %v: %s", argv, err, out)
	}
	return string(out)
}

// hold starts a process that holds a file, which is closed here.
func (h host) hold(f *os.File) *exec.Cmd {
	h.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.ExtraFiles = []*os.File{f}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		h.Fatal(err)
	}
	f.Close()
	h.Cleanup(func() { h.end(cmd) })
	return cmd
}

func (h host) end(cmd *exec.Cmd) { cmd.Process.Kill(); cmd.Wait() }

// vm is a VM with a tap of this name.
func (h host) vm(name, tap string, last byte) (nwfilter.VM, *exec.Cmd) {
	h.Helper()
	vm := nwfilter.VM{Filter: nwfilter.Filter{Machine: name, MAC: net.HardwareAddr{0x52, 0x54, 0, 0, 0, last},
		Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, last})}}}
	f, err := networktest.MakeTap(tap, "br0", vm.MAC)
	if err != nil {
		h.Fatal(err)
	}
	cmd := h.hold(f)
	vm.PID = cmd.Process.Pid
	return vm, cmd
}

func (h host) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h host) restore(vms ...nwfilter.VM) {
	h.Helper()
	nwfilter.Restore(h.Context(), vms, func(i int, err error) { h.Errorf("%s: %v", vms[i].Machine, err) })
}

// ruleset wants all of these texts in the host's rules, and none that begins with "!".
func (h host) ruleset(when string, texts ...string) {
	h.Helper()
	all := h.run("nft", "list", "ruleset")
	for _, text := range texts {
		text, not := strings.CutPrefix(text, "!")
		if strings.Contains(all, text) == not {
			h.Errorf("%s: %q is there: %v, in\n%s", when, text, not, all)
		}
	}
}

// TestKilled: the agent is killed between any two of its steps, and the next one's Restore leaves what is needed.
func TestKilled(t *testing.T) {
	h := newHost(t)
	vm, cmd := h.vm("grange-1", "vnet0", 1)
	h.restore(vm) // killed before Fence
	h.ruleset("not fenced", `"vnet0" : goto send_`, "_grange-1")
	h.run("nft", "delete", "element", "bridge", nwfilter.Table, "senders", `{ "vnet0" }`)
	h.restore(vm)
	h.ruleset("a part was removed", `"vnet0" : goto send_`)
	h.run("nft", "flush", "ruleset")
	h.restore(vm)
	h.ruleset("all was removed", `"vnet0" : goto send_`)
	h.end(cmd) // killed before Release, and the next VM's tap has the same name
	next, _ := h.vm("grange-2", "vnet0", 2)
	h.restore(next)
	h.ruleset("another has its name", "!grange-1", "_grange-2", "10.0.0.2", "!10.0.0.1")
	h.must(nwfilter.Release(t.Context(), "grange-1")) // the first one's, late
	h.ruleset("the first is released late", "_grange-2", `"vnet0" : goto send_`)
	h.must(nwfilter.Release(t.Context(), "grange-2"))
	h.ruleset("released", "!grange")
	h.restore()
	h.ruleset("nobody is left", "!grange")
}

// TestStartedAgain: a machine that ends and starts under its name has the filter of its new tap alone.
func TestStartedAgain(t *testing.T) {
	h := newHost(t)
	vm, cmd := h.vm("grange-1", "vnet0", 1)
	h.must(nwfilter.Fence(t.Context(), vm))
	stays, _ := h.vm("grange-3", "vnet3", 3)
	stays.Closed, stays.Local = true, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}
	h.must(nwfilter.Fence(t.Context(), stays))
	h.end(cmd)
	vm, _ = h.vm("grange-1", "vnet0", 2)
	h.must(nwfilter.Fence(t.Context(), vm))
	h.ruleset("started again", `"vnet0" : goto send_`, "!10.0.0.1 ", "10.0.0.2", "10.0.0.3", `"vnet3" : goto closed_`)
	stays.Closed = false
	h.restore(vm, stays)
	h.ruleset("open again", "!closed_5", `"vnet3" : goto send_`, "!goto closed_")
}

// TestNoTap: who holds no tap, or another VM's, has no filter and does not start.
func TestNoTap(t *testing.T) {
	h := newHost(t)
	victim, _ := h.vm("grange-1", "vnet0", 1)
	h.must(nwfilter.Fence(t.Context(), victim))
	null, err := os.Open(os.DevNull)
	h.must(err)
	refused := func(what string, vm nwfilter.VM) {
		t.Helper()
		if err := nwfilter.Fence(t.Context(), vm); !farm.IsCode(err, farm.CodeNoFilter) {
			t.Errorf("%s: %v", what, err)
		}
		h.ruleset(what, "!grange-2", "10.0.0.1", `"vnet0" : goto send_`)
	}
	vm := nwfilter.VM{PID: h.hold(null).Process.Pid, Filter: nwfilter.Filter{Machine: "grange-2",
		MAC: net.HardwareAddr{0x52, 0x54, 0, 0, 0, 2}}}
	refused("a process without taps", vm)
	vm.PID = 1 << 30
	refused("a process that has ended", vm)
	vm.PID = victim.PID
	refused("the tap of another card", vm)
	vm.PID = h.elsewhere("vnet0", vm.MAC)
	refused("a tap of that name, in a network of its own", vm)
	vm.MAC = nil
	refused("a card without MAC", vm)
	failed := 0
	nwfilter.Restore(t.Context(), []nwfilter.VM{victim, vm}, func(i int, err error) { failed++ })
	if failed != 1 {
		t.Errorf("%d of two VMs could not be restored", failed)
	}
	h.ruleset("restored beside it", "10.0.0.1", "!grange-2")
}

// elsewhere is a process that holds a tap of a network that is not ours.
func (h host) elsewhere(name string, mac net.HardwareAddr) int {
	h.Helper()
	files := make(chan *os.File)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			h.Error(err)
		} else if out, err := exec.Command("ip", "link", "add", "br0", "type", "bridge").CombinedOutput(); err != nil {
			h.Errorf("%v: %s", err, out)
		}
		f, err := networktest.MakeTap(name, "br0", mac)
		if err != nil {
			h.Error(err)
		}
		files <- f
	}()
	return h.hold(<-files).Process.Pid
}

// TestTwoAgents: two agents share a host, and neither removes what the other needs.
func TestTwoAgents(t *testing.T) {
	h := newHost(t)
	first, cmd := h.vm("grange-1", "vnet1", 1)
	second, _ := h.vm("test-2", "vnet2", 2)
	h.must(nwfilter.Fence(t.Context(), first))
	h.must(nwfilter.Fence(t.Context(), second))
	h.restore(first) // each restores its own
	h.restore(second)
	h.ruleset("both", "_grange-1", "_test-2")
	h.end(cmd)
	h.must(nwfilter.Release(t.Context(), "grange-1"))
	h.restore()
	h.ruleset("one has ended", "!grange-1", `"vnet2" : goto send_`)
	h.must(nwfilter.Release(t.Context(), "test-2"))
	h.ruleset("all have ended", "!grange")
}

// TestPort: a port is isolated as the network says, and takes no part in the spanning tree.
func TestPort(t *testing.T) {
	h := newHost(t)
	vm, _ := h.vm("grange-1", "vnet1", 1)
	for _, isolated := range []bool{true, false} {
		vm.Isolated = isolated
		h.must(nwfilter.Fence(t.Context(), vm))
		want := map[bool]string{true: "isolated on", false: "isolated off"}[isolated]
		if got := h.run("bridge", "-d", "link", "show", "dev", "vnet1"); !strings.Contains(got, want) ||
			!strings.Contains(got, "guard on") {
			t.Errorf("isolated %v: %s", isolated, got)
		}
	}
}
