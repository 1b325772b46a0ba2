package agent

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// oneCPU is what a guest reports of a machine with one CPU and so much memory.
func oneCPU(memory farm.Bytes) farm.GuestView {
	one := farm.NewCPUSet(0)
	return farm.GuestView{Sockets: []farm.CPUSet{one}, Cores: []farm.CPUSet{one}, Clock: "kvm-clock",
		Nodes: []farm.GuestNode{{CPUs: one, Memory: memory}}}
}

func TestGuestDiffers(t *testing.T) {
	plan := farm.Plan{VCPUs: farm.EachCPU([]int{3}), Guest: farm.GuestTopology{Sockets: 1, Cores: 1, Threads: 1},
		Cells: []farm.GuestCell{{VCPUs: farm.NewCPUSet(0), Memory: farm.GiB}}}
	host := farm.CPUModel{Flags: []string{"svm", "topoext", "avx2", "sha_ni", "avx512f"}}
	kvm, tcg := hyper.Applied{Accelerator: "kvm", CPUMode: "host-passthrough"}, hyper.Applied{Accelerator: "tcg",
		CPUMode: "maximum"}
	named := hyper.Applied{Accelerator: "kvm", CPUMode: "custom", CPUModel: "EPYC"}
	with := func(clock string, flags ...string) farm.GuestView {
		v := oneCPU(1000 * farm.MiB)
		v.Clock, v.Flags = clock, flags
		return v
	}
	for name, c := range map[string]struct {
		applied hyper.Applied
		view    farm.GuestView
		want    []string
	}{
		"right": {kvm, with("kvm-clock", "avx2", "sha_ni", "avx512f"), nil},
		"tsc":   {kvm, with("tsc", "avx2", "sha_ni", "avx512f"), nil},
		"instructions lack": {kvm, with("tsc", "avx2"),
			[]string{"the guest lacks of the host's CPU: sha_ni avx512f"}},
		"of a named model": {named, with("tsc", "avx2"), nil},
		"flags not told":   {kvm, with("tsc"), nil},
		"a slow clock": {named, with("acpi_pm"),
			[]string{`the guest's clock is "acpi_pm": each look at it leaves the guest`}},
		"a hostile clock": {named, with("x\x1b[2J\n" + strings.Repeat("y", 99)),
			[]string{`the guest's clock is "x\u00a0[2J": each look at it leaves the guest`}},
		"an emulated one": {tcg, with("hpet", "x"), nil},
		"nothing":         {kvm, farm.GuestView{}, nil},
		"the topology, emulated": {tcg,
			farm.GuestView{Sockets: []farm.CPUSet{farm.CPURange(0, 2)}, Cores: farm.EachCPU([]int{0, 1})},
			[]string{"the guest uses 2 CPUs, planned are 1"}},
	} {
		got := guestDiffers(plan, c.applied, host, c.view)
		if name == "a hostile clock" {
			if len(got) != 1 || strings.ContainsAny(got[0], "\x1b\n") || len(got[0]) > 120 {
				t.Errorf("%s: %q", name, got)
			}
			continue
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestGuestViewIsShown: by the VM, also to the next agent; a difference by the host, too, and once to whoever waits for
// the job.
func TestGuestViewIsShown(t *testing.T) {
	for name, c := range map[string]struct {
		view    *farm.GuestView
		differs bool
	}{
		"an older guest": {nil, false},
		"as planned":     {new(oneCPU(100 * farm.MiB)), false},
		"another":        {new(oneCPU(8 * farm.GiB)), true},
	} {
		f := newFarmhouse(t)
		f.guests.view = c.view
		x := f.mustAsk(f.caller(""), api.JobRequest{})
		var told []string
		for e := range x.events {
			if e.Code == api.CodeGuestDiffers {
				told = append(told, e.Message)
			}
			if e.Event == api.EventRunning {
				break
			}
		}
		if (len(told) == 1) != c.differs || c.differs && !strings.Contains(told[0], "8G on node 0, planned are 128M") {
			t.Errorf("%s: told %q", name, told)
		}
		shown := func(vm api.VM) bool {
			if c.view == nil || vm.Guest == nil {
				return c.view == nil && vm.Guest == nil
			}
			return vm.Guest.Threads == 1 && (len(vm.Guest.Differs) == 1) == c.differs &&
				vm.Guest.Nodes[0].Memory == uint64(c.view.Nodes[0].Memory)
		}
		f.shows(name, shown)
		var host api.Host
		w := httptest.NewRecorder()
		if err := f.agent.getHost(w, httptest.NewRequest("GET", "/v1/host", nil), admin); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(w.Body.Bytes(), &host); err != nil || (host.Differing == 1) != c.differs {
			t.Errorf("%s: %v; the host counts %d", name, err, host.Differing)
		}
		f.close()
		f.open()
		f.shows(name+", to the next agent", shown)
	}
}
