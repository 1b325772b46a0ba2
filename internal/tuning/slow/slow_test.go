package slow

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// process is a VM of two vCPUs, 11 and 12, and an emulator.
func process() farm.Process {
	return farm.Process{PID: 10, Threads: []farm.Thread{{ID: 10, VCPU: farm.NoVCPU}, {ID: 11}, {ID: 12, VCPU: 1}}}
}

// counted is what the kernel says of the VM: of each vCPU, and of the emulator.
type counted struct {
	vcpu, emulator ticks
	swap           int // KiB
	exits          map[string]int
}

// ticks of 10 ms
type ticks struct{ user, system, guest, disk, waited, faults int }

func (c counted) files() fstest.MapFS {
	out := fstest.MapFS{"proc/10/status": {Data: fmt.Appendf(nil, "Name:\tqemu\nVmSwap:\t%8d kB\n", c.swap)}}
	for id, t := range map[int]ticks{10: c.emulator, 11: c.vcpu, 12: c.vcpu} {
		fields := make([]int, 53)
		fields[12], fields[14], fields[15], fields[42], fields[43] = t.faults, t.user, t.system, t.disk, t.guest
		stat := fmt.Sprintf("%d (CPU 0/KVM) S", id)
		for n := 4; n < 53; n++ {
			stat += fmt.Sprintf(" %d", fields[n])
		}
		dir := fmt.Sprintf("proc/10/task/%d/", id)
		out[dir+"stat"] = &fstest.MapFile{Data: []byte(stat + "\n")}
		out[dir+"schedstat"] = &fstest.MapFile{Data: fmt.Appendf(nil, "%d %d 7\n", (t.user+t.system)*1e7, t.waited*1e7)}
	}
	for name, n := range c.exits {
		out["sys/kernel/debug/kvm/10-14/"+name] = &fstest.MapFile{Data: fmt.Appendf(nil, "%d\n", n)}
		out["sys/kernel/debug/kvm/99-14/"+name] = &fstest.MapFile{Data: []byte("1000000\n")}
	}
	return out
}

// after looks twice, ten seconds apart, at a VM of which this was counted meanwhile.
func after(t *testing.T, c counted) Report {
	t.Helper()
	now := time.Now()
	first := counted{}
	if c.exits != nil {
		first.exits = map[string]int{"exits": 0}
	}
	one, err := Read(first.files(), process(), now)
	if err != nil {
		t.Fatal(err)
	}
	two, err := Read(c.files(), process(), now.Add(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return Compare(process(), one, two)
}

// TestCauses: each way to be slow is found, by itself.
func TestCauses(t *testing.T) {
	for name, c := range map[string]struct {
		is     counted
		causes string
	}{
		"as it should be": {counted{vcpu: ticks{user: 990, guest: 985, system: 10}}, ""},
		"idle":            {counted{}, ""},
		"others run":      {counted{vcpu: ticks{user: 700, guest: 700, waited: 300}}, "steal"},
		"no KVM":          {counted{vcpu: ticks{user: 900}}, "no-kvm"},
		"old devices": {counted{vcpu: ticks{user: 900, guest: 700}, exits: map[string]int{"io_exits": 200000}},
			"emulation device-exits"},
		"swapped":   {counted{swap: 5000}, "swap"},
		"thrashing": {counted{emulator: ticks{faults: 500}}, "disk-faults"},
		"slow disk": {counted{emulator: ticks{disk: 400}}, "disk"},
		"shadow paging": {counted{vcpu: ticks{user: 500, guest: 500, system: 400}, exits: map[string]int{"pf_fixed": 200000}},
			"page-tables"},
		"many exits": {counted{vcpu: ticks{user: 500, guest: 500, system: 100}, exits: map[string]int{"exits": 900}},
			"kernel"},
		"ping-pong":   {counted{exits: map[string]int{"halt_exits": 400000}}, "halts"},
		"two at once": {counted{vcpu: ticks{user: 600, guest: 500, waited: 300}}, "steal emulation"},
	} {
		r := after(t, c.is)
		var names []string
		for _, cause := range r.Causes {
			names = append(names, cause.Name)
		}
		if got := strings.Join(names, " "); got != c.causes || r.Causes == nil {
			t.Errorf("%s: %q, want %q\n%s", name, got, c.causes, r.Text("web"))
		}
		if strings.Contains(r.Text("web"), "nothing that this host does") != (c.causes == "") ||
			strings.Contains(r.Text("web"), " VM`") {
			t.Errorf("%s:\n%s", name, r.Text("web"))
		}
	}
}

func TestShares(t *testing.T) {
	r := after(t, counted{vcpu: ticks{user: 600, guest: 550, system: 100, waited: 50},
		emulator: ticks{user: 30, system: 20}, exits: map[string]int{"exits": 40000, "io_exits": 2000}})
	if r.VCPUs != 2 || r.Seconds != 10 || r.Guest != 55 || r.QEMU != 5 || r.Kernel != 10 || r.Waits != 5 ||
		r.Others != 5 || r.Idle() != 25 || r.Exits["exits"] != 2000 || r.Exits["io_exits"] != 100 {
		t.Errorf("%+v", r)
	}
	if text := r.Text("web"); !strings.Contains(text, "exits 2000, io_exits 100") {
		t.Error(text)
	}
}

// TestUnread: without debugfs the rest is told, and why.
func TestUnread(t *testing.T) {
	r := after(t, counted{vcpu: ticks{user: 900, guest: 900}})
	if r.Exits != nil || !strings.Contains(r.Text("web"), "not to be seen") {
		t.Errorf("%+v", r)
	}
	if _, err := Read(fstest.MapFS{}, process(), time.Now()); err == nil {
		t.Error("a process that has gone is no error")
	}
	files := counted{}.files()
	files["proc/10/task/11/stat"] = &fstest.MapFile{Data: []byte("11 (x) S 1")}
	if _, err := Read(files, process(), time.Now()); err == nil {
		t.Error("a stat that is cut short is no error")
	}
}
