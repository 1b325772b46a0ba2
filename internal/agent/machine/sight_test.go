package machine

import (
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

func TestGuestDiffers(t *testing.T) {
	plan := farm.Plan{VCPUs: farm.EachCPU([]int{3}), Guest: farm.GuestTopology{Sockets: 1, Cores: 1, Threads: 1},
		Cells: []farm.GuestCell{{VCPUs: farm.NewCPUSet(0), Memory: farm.GiB}}}
	host := farm.CPUModel{Flags: []string{"svm", "topoext", "avx2", "sha_ni", "avx512f"}}
	kvm, tcg := hyper.Applied{Accelerator: "kvm", CPUMode: "host-passthrough"}, hyper.Applied{Accelerator: "tcg",
		CPUMode: "maximum"}
	named := hyper.Applied{Accelerator: "kvm", CPUMode: "custom", CPUModel: "EPYC"}
	with := func(clock string, flags ...string) farm.GuestView {
		v := farm.GuestView{Sockets: []farm.CPUSet{farm.NewCPUSet(0)}, Cores: []farm.CPUSet{farm.NewCPUSet(0)},
			Clock: "kvm-clock", Nodes: []farm.GuestNode{{CPUs: farm.NewCPUSet(0), Memory: 1000 * farm.MiB}}}
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
