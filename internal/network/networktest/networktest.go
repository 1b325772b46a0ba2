// Package networktest is the contract of network.Kind as tests, in network namespaces of their own. Every kind runs it.
package networktest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/lazyregexp"
	"github.com/grange-project/grange/internal/network"
)

// Lab is what the suite needs to know of a kind of network.
type Lab struct {
	Network farm.Network     // one of the kind, on a host that has been set up
	Setup   []string         // commands that set the host up, as an administrator does; none: any host will do
	Begin   func(*testing.T) // begins, after Setup, what has to run on the host; nil: nothing has
	Show    []string         // a command that shows what the kind may leave outside of the kernel; none: nothing
	Invalid []farm.Network   // that look like the kind's, and that nobody may ask for
	Absent  []farm.Network   // valid ones that this host does not have, even when it has been set up
	Card    hyper.Card       // of a VM with the MAC address MAC; with a bridge, its process holds a tap there
	// what the site configures
	Settings network.Settings
}

// MAC is what the suite gives VMs.
const MAC = "52:54:0a:66:00:14"

// user is an account that nobody has, as which the suite's machines run.
const user = 61098

// Run runs the contract.
func Run(t *testing.T, l Lab) {
	t.Run("invalid", l.invalid)
	for name, test := range map[string]func(*suite){
		"absent":             (*suite).absent,
		"card":               (*suite).card,
		"prepared twice":     (*suite).twice,
		"released unmade":    (*suite).unmade,
		"released unfenced":  (*suite).unfenced,
		"released twice":     (*suite).released,
		"restored":           (*suite).restored,
		"restored untouched": (*suite).untouched,
		"neighbours":         (*suite).neighbours,
		"shared users":       (*suite).shared,
	} {
		t.Run(name, func(t *testing.T) {
			if os.Getuid() != 0 {
				t.Skip("needs root: it makes a network namespace")
			}
			// The thread is not unlocked: it ends with the test, and the namespace with it.
			runtime.LockOSThread()
			if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
				t.Fatal(err)
			}
			s := &suite{T: t, lab: l, kind: network.Of(l.Network)}
			for _, line := range l.Setup {
				s.run(strings.Fields(line)...)
			}
			if l.Begin != nil {
				l.Begin(t)
			}
			s.before = s.host()
			test(s)
		})
	}
}

// invalid: a network that nobody may ask for is refused by its name, and the error says what there is.
func (l Lab) invalid(t *testing.T) {
	for _, n := range append([]farm.Network{l.Network + ":", l.Network + ":/"}, l.Invalid...) {
		err := farm.Shape{CPUs: 1, Memory: farm.GiB, Network: n}.Validate()
		why(t, err, string(n))
		if _, ok := n.Kind(); ok {
			t.Errorf("%q has a kind", n)
		}
	}
	if err := (farm.Shape{CPUs: 1, Memory: farm.GiB, Network: l.Network}).Validate(); err != nil {
		t.Error(err)
	}
}

// why wants an error for people: what it is about, and what to try.
func why(t *testing.T, err error, about string) {
	t.Helper()
	var e *farm.Error
	if !errors.As(err, &e) || e.Code == "" || e.Hint == "" || !strings.Contains(e.Message, about) {
		t.Errorf("%s: %v, want an error that says why, and what to try", about, err)
	}
}

type suite struct {
	*testing.T
	lab    Lab
	kind   network.Kind
	before []string // of host
	made   int
	taps   map[string]int // and their indexes
}

// absent: a network that the host does not have is refused, and the error names what is missing.
func (s *suite) absent() {
	for _, n := range s.lab.Absent {
		_, of, _ := strings.Cut(string(n), ":")
		why(s.T, s.kind.Check(n, s.lab.Settings), of)
	}
	s.must(s.kind.Check(s.lab.Network, s.lab.Settings))
	s.same("Check", s.before)
}

func (s *suite) card() {
	vm := s.vm()
	vm.MAC = MAC
	card, err := s.kind.Prepare(s.Context(), vm, s.lab.Settings)
	s.must(err)
	if diff := cmp.Diff(s.lab.Card, card); diff != "" {
		s.Error(diff)
	}
}

// twice: what an earlier attempt, or agent, has made is no hindrance.
func (s *suite) twice() {
	vm := s.vm()
	first, err := s.kind.Prepare(s.Context(), vm, s.lab.Settings)
	s.must(err)
	prepared := s.host()
	second, err := s.kind.Prepare(s.Context(), vm, s.lab.Settings)
	s.must(err)
	if first != second {
		s.Errorf("the card is %+v first, and %+v then", first, second)
	}
	s.same("prepared twice", prepared)
	vm = s.begun(vm)
	s.must(s.kind.Fence(s.Context(), vm, s.lab.Settings))
	fenced := s.host()
	s.must(s.kind.Fence(s.Context(), vm, s.lab.Settings))
	s.same("fenced twice", fenced)
	s.end(vm)
	s.same("released after all that", s.before)
}

func (s *suite) unmade() {
	s.end(s.vm())
	s.same("released, with nothing made", s.before)
}

func (s *suite) unfenced() {
	vm := s.vm()
	_, err := s.kind.Prepare(s.Context(), vm, s.lab.Settings)
	s.must(err)
	s.end(vm)
	s.same("released before its process was there", s.before)
}

// released: nothing is left, and there is nothing more to do.
func (s *suite) released() {
	vm := s.start(s.lab.Settings)
	s.end(vm)
	s.same("released", s.before)
	s.must(s.kind.Release(s.Context(), vm.Name))
	s.same("released twice", s.before)
}

// restored: whoever flushes the host's rules changes nothing for long.
func (s *suite) restored() {
	vms := []network.VM{s.start(s.lab.Settings), s.start(s.lab.Settings)}
	want := s.host()
	s.run("nft", "flush", "ruleset")
	s.restore(vms)
	s.same("restored", want)
	for _, vm := range vms {
		s.end(vm)
	}
	s.same("restored and released", s.before)
}

func (s *suite) untouched() {
	vms := []network.VM{s.start(s.lab.Settings)}
	want := s.host()
	s.restore(vms)
	s.same("restored, with nothing missing", want)
	s.end(vms[0])
	failed := func(network.VM, error) {} // its process has ended
	s.kind.Restore(s.Context(), vms, s.lab.Settings, failed)
	s.same("restored, released already", s.before)
}

// neighbours: the end of one VM is nothing to another.
func (s *suite) neighbours() { s.beside(s.lab.Settings) }

// shared is neighbours where all VMs have users of one range.
func (s *suite) shared() {
	settings := s.lab.Settings
	settings.VMUIDs = farm.UIDs{First: user - 1, Last: user + 1}
	s.beside(settings)
}

func (s *suite) beside(settings network.Settings) {
	stays := s.start(settings)
	alone := s.host()
	s.end(s.start(settings))
	s.same("a later one has ended", alone)
	later := s.start(settings)
	s.end(stays)
	for i := range alone {
		alone[i] = strings.ReplaceAll(alone[i], stays.Name, later.Name)
	}
	s.same("an earlier one has ended", alone)
	s.end(later)
	s.same("all have ended", s.before)
}

// start takes a VM to its first instruction.
func (s *suite) start(settings network.Settings) network.VM {
	s.Helper()
	vm := s.vm()
	_, err := s.kind.Prepare(s.Context(), vm, settings)
	s.must(err)
	vm = s.begun(vm)
	s.must(s.kind.Fence(s.Context(), vm, settings))
	return vm
}

// vm is a machine whose process is not there yet.
func (s *suite) vm() network.VM {
	s.made++
	vm := network.VM{Name: fmt.Sprintf("grange-%08d", s.made), Network: s.lab.Network}
	if s.lab.Card.Bridge != "" {
		vm.MAC, vm.Addresses = MAC, []netip.Prefix{netip.MustParsePrefix("10.0.0.20/24")}
		vm.Isolated, vm.Closed = true, true
	}
	return vm
}

// begun is a machine that was prepared, with its process, of an account of its own, which holds its tap.
func (s *suite) begun(vm network.VM) network.VM {
	s.Helper()
	id := fmt.Sprint(user)
	cmd := exec.Command("setpriv", "--reuid", id, "--regid", id, "--clear-groups", "sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if bridge := s.lab.Card.Bridge; bridge != "" {
		cmd.ExtraFiles = []*os.File{s.tap(bridge)}
	}
	s.must(cmd.Start())
	for _, f := range cmd.ExtraFiles {
		f.Close()
	}
	s.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	status := fmt.Sprintf("/proc/%d/status", cmd.Process.Pid)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if text, _ := os.ReadFile(status); strings.Contains(string(text), "Uid:\t"+id) {
			break
		}
		if time.Now().After(deadline) {
			s.Fatal("its process has not become its user within 20 s")
		}
	}
	vm.PID = cmd.Process.Pid
	return vm
}

// tap is a VM's. Its name is that of one that has gone, as those of libvirt may be.
func (s *suite) tap(bridge string) *os.File {
	s.Helper()
	name := "vnet0"
	if _, err := net.InterfaceByName(name); err == nil {
		name = "vnet1"
	}
	mac, err := net.ParseMAC(MAC)
	s.must(err)
	f, err := MakeTap(name, bridge, mac)
	s.must(err)
	i, err := net.InterfaceByName(name)
	s.must(err)
	if s.taps == nil {
		s.taps = map[string]int{}
	}
	s.taps[name] = i.Index
	return f
}

// end ends a VM's process, where there is one, and releases its network.
func (s *suite) end(vm network.VM) {
	s.Helper()
	if vm.PID != 0 {
		s.must(syscall.Kill(vm.PID, syscall.SIGKILL))
		var status syscall.WaitStatus
		syscall.Wait4(vm.PID, &status, 0, nil)
	}
	s.must(s.kind.Release(s.Context(), vm.Name))
}

func (s *suite) restore(vms []network.VM) {
	s.Helper()
	s.kind.Restore(s.Context(), vms, s.lab.Settings, func(vm network.VM, err error) {
		s.Errorf("%s: %v", vm.Name, err)
	})
}

// settling is what the kernel changes by itself, some time after a link is up.
var settling = lazyregexp.New(`NO-CARRIER,|,LOWER_UP| state [A-Z]+`)

// host is what a kind may leave: links, addresses, routes, rules, and how many addresses each link is forwarded, in
// some order.
func (s *suite) host() []string {
	s.Helper()
	var all []string
	for _, argv := range [][]string{{"ip", "-oneline", "link", "show"}, {"ip", "-oneline", "address", "show"},
		{"ip", "route", "show", "table", "all"}, {"bridge", "fdb", "show"},
		{"nft", "--stateless", "list", "ruleset"}, s.lab.Show} {
		if len(argv) == 0 {
			continue
		}
		lines := slices.Collect(strings.Lines(s.run(argv...)))
		for i, line := range lines {
			if i+1 < len(lines) && lines[i+1] == "}\n" || line == "}\n" {
				continue // a table with nothing in it
			}
			if argv[0] != "nft" && s.ofTap(line) {
				continue // it goes with the VM's process
			}
			if argv[0] == "bridge" {
				_, line, _ = strings.Cut(line, " ") // what stands for a machine there has not its name
			}
			line = anyFunction.ReplaceAllString(settling.ReplaceAllString(line, ""), "altname vf-")
			all = append(all, s.anyTap(strings.TrimSpace(line)))
		}
	}
	slices.Sort(all)
	return all
}

// anyFunction has a VM have any of the functions of a card.
var anyFunction = lazyregexp.New(`altname vf[0-9]+-`)

// ofTap reports whether a line is about a tap.
func (s *suite) ofTap(line string) bool {
	for name := range s.taps {
		if strings.Contains(line, " "+name) {
			return true
		}
	}
	return false
}

// anyTap is a line as it would be with any other tap.
func (s *suite) anyTap(line string) string {
	for name, index := range s.taps {
		line = strings.ReplaceAll(line, `"`+name+`"`, "TAP")
		line = strings.ReplaceAll(line, fmt.Sprintf("_%d_", index), "_TAP_")
	}
	return line
}

// same wants the host to be as it was.
func (s *suite) same(when string, want []string) {
	s.Helper()
	if diff := cmp.Diff(want, s.host()); diff != "" {
		s.Errorf("%s:\n%s", when, diff)
	}
}

func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %v: %w: %s", args, err, out)
	}
	return nil
}

func (s *suite) run(argv ...string) string {
	s.Helper()
	out, err := exec.CommandContext(s.Context(), argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		s.Fatalf("%v: %v: %s", argv, err, out)
	}
	return string(out)
}

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}
