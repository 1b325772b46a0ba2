package host

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/grange-project/grange/internal/farm"
)

// hostSettings prints in a block of lines how a host is set up for virtual machines. What the host does not report is
// left out.
func hostSettings(h farm.HostFacts) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	line := func(name string, parts ...string) {
		if text := join(parts...); text != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, text)
		}
	}
	line("system", farm.Printable(h.OS.Name), with("kernel ", h.Kernel.Release), with("QEMU ", h.Versions.QEMU),
		with("libvirt ", h.Versions.Libvirt), virtual(h))
	for _, n := range h.Topology.Nodes {
		for _, p := range n.Pages {
			if p.Total > 0 {
				line("huge pages", fmt.Sprintf("node %d: %d of %v, %d free", n.ID, p.Total, p.Size, p.Free),
					some("%d surplus", p.Surplus))
			}
		}
	}
	if pages := h.Pages; len(pages) > 0 &&
		!slices.ContainsFunc(pages, func(p farm.PagePool) bool { return p.Total > 0 }) {
		line("huge pages", "none")
	}
	line("transparent", with("", h.THP.Enabled), with("defrag ", h.THP.Defrag), with("shmem ", h.THP.Shmem))
	line("KSM", merging(h.KSM))
	line("KVM", paging(h.KVM, h.Kernel.Release != ""), with("nested ", string(nested(h.KVM))),
		with("halt polling ", h.KVM.Params["kvm.halt_poll_ns"]))
	for _, g := range h.Clocks {
		line("frequency", fmt.Sprintf("CPUs %v: %s", g.CPUs, g.Name), g.Driver, with("preference ", g.Preference))
	}
	if h.Memory.SwapTotal > 0 {
		line("swap", fmt.Sprintf("%v, %v used", h.Memory.SwapTotal.Rounded(),
			(h.Memory.SwapTotal-min(h.Memory.SwapFree, h.Memory.SwapTotal)).Rounded()),
			with("swappiness ", h.Sysctl["vm.swappiness"]))
	} else if h.Memory.Total > 0 {
		line("swap", "none")
	}
	line("set aside", with("isolated CPUs ", h.Isolated.String()), with("without ticks ", h.NoHzFull.String()))
	for _, p := range h.Partitions {
		line("set aside", fmt.Sprintf("CPUs %v for %s (%s)", p.CPUs, farm.Printable(p.Path), p.Kind))
	}
	line("threads", with("SMT ", h.SMT))
	line("clock", h.Kernel.Clock)
	line("daemons", strings.Join(runningServices(h), ", "))
	line("VMs", domains(h.Domains))
	for _, u := range h.Unread {
		line("not read", farm.Printable(u))
	}
	w.Flush()
	return b.String()
}

func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

// with puts a word before a value, unless there is no value.
func with(before, value string) string {
	if value == "" {
		return ""
	}
	return before + value
}

func some(format string, n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(format, n)
}

func virtual(h farm.HostFacts) string {
	if h.Virtual {
		return "a virtual machine itself"
	}
	return ""
}

func merging(k farm.KSM) string {
	switch {
	case !k.Known:
		return ""
	case k.Run == 1:
		return fmt.Sprintf("KSM runs, %d pages stand for %d more", k.Shared, k.Sharing)
	case k.Sharing > 0:
		return fmt.Sprintf("KSM is stopped, %d pages still stand for %d more", k.Shared, k.Sharing)
	}
	return "off"
}

// paging is told where the host says at least which kernel it runs: a recording of the hardware alone says nothing of
// modules.
func paging(k farm.KVM, told bool) string {
	value, name := k.Paging()
	switch {
	case len(k.Params) == 0 && !k.Loaded && !told:
		return "not reported"
	case value.On():
		return "hardware page tables on (" + name + ")"
	case value.Off():
		return "hardware page tables off (" + name + ")"
	case !k.Loaded:
		return "not loaded"
	}
	return "loaded"
}

func nested(k farm.KVM) farm.Switch {
	for _, name := range []string{"kvm_intel.nested", "kvm_amd.nested"} {
		switch v := farm.Switch(k.Params[name]); {
		case v.On():
			return "on"
		case v.Off():
			return "off"
		}
	}
	return ""
}

func runningServices(h farm.HostFacts) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(h.Services)) {
		switch s := h.Services[name]; {
		case s.Running && name == "tuned" && h.TunedProfile != "":
			out = append(out, "tuned with profile "+farm.Printable(h.TunedProfile))
		case s.Running:
			out = append(out, name)
		case s.Enabled:
			out = append(out, name+" (at the next boot)")
		}
	}
	return out
}

func domains(all []farm.Domain) string {
	if len(all) == 0 {
		return ""
	}
	running, vcpus := 0, 0
	for _, d := range all {
		if d.Running {
			running, vcpus = running+1, vcpus+d.VCPUs
		}
	}
	return fmt.Sprintf("%d defined in libvirt, %d running with %s", len(all), running, farm.Count(vcpus, "vCPU"))
}
