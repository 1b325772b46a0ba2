package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/e2e/metal/metallab"
)

// isInstructions are the flags that programs choose their code by; the others are of the kernel or of the hypervisor.
var isInstructions = regexp.MustCompile(`^(mmx|fxsr|s?sse|avx|aes|vaes|v?pclmul|bmi|adx|fma|f16c|popcnt|abm|sha_ni|movbe|` +
	`rdrand|rdseed|cx16|cx8|lahf_lm|xsave|fsgsbase|clflush|clwb|gfni|rdtscp)`)

// instructions returns those of have that are missing from others.
func instructions(have, others []string) []string {
	return slices.DeleteFunc(slices.Clone(have), func(f string) bool {
		return !isInstructions.MatchString(f) || slices.Contains(others, f)
	})
}

// TestCPU: each mode of CPU starts, its guest's clock and flags are what they should be, and a model that the host
// lacks is refused before QEMU starts, with what lacks.
func TestCPU(t *testing.T) {
	long(t)
	t.Parallel()
	h := start(t, metallab.Options{Name: "cpu"})
	const script = `sed -n "/^flags/{s/.*://p;q}" /proc/cpuinfo`
	flags := func(v held) []string { return strings.Fields(v.out) }
	host := strings.Fields(run(t, h, `sed -n '/^flags/{s/.*://p;q}' /proc/cpuinfo`))
	const modern = "sse4_1" // which kvm64 has not
	if !slices.Contains(host, modern) {
		t.Fatalf("the host's flags: %v", host)
	}
	for mode, cpus := range map[string]string{"host-passthrough": "--cpus 2", "host-model": "--cpus 2",
		"kvm64": "--cpus 1"} {
		v := hold(t, h, mode, cpus+" --memory 150M --cpu-model "+mode, script)
		seen(t, v)
		if v.vm.Applied.Accelerator != "kvm" || v.vm.Applied.CPUMode != mode && v.vm.Applied.CPUModel != mode {
			t.Errorf("%s: %+v", mode, v.vm.Applied)
		}
		if g := v.vm.Guest; g != nil && g.Clock != "kvm-clock" && g.Clock != "tsc" {
			t.Errorf("%s: its clock is %s", mode, g.Clock)
		}
		if want := mode != "kvm64"; slices.Contains(flags(v), modern) != want {
			t.Errorf("%s: the guest has %s: %v", mode, modern, !want)
		}
		if lacks := instructions(host, flags(v)); mode != "kvm64" && len(lacks) > 0 {
			t.Errorf("%s: the host has instructions that the guest lacks: %v", mode, lacks)
		}
		if more := instructions(flags(v), host); len(more) > 0 {
			t.Errorf("%s: the guest has instructions that the host lacks: %v", mode, more)
		}
		xml := run(t, h, "virsh -c qemu:///system dumpxml "+v.vm.Name)
		for _, text := range []string{`<hint-dedicated state='on'/>`, `<poll-control state='on'/>`} {
			if !strings.Contains(xml, text) {
				t.Errorf("%s: a pinned VM has no %s", mode, text)
			}
		}
		if strings.Contains(xml, "topoext") != (v.vm.Plan.Threads > 1) && mode != "host-model" {
			t.Errorf("%s: topoext, with %d threads a core:\n%s", mode, v.vm.Plan.Threads, xml)
		}
	}
	release(t, h)
	for model, want := range map[string]string{"Skylake-Server": "avx512f", "Nonsense": "Nonsense"} {
		out := run(t, h, "grange exec --cpu-model "+model+" --memory 150M -- true 2>&1; echo status $?")
		if !strings.Contains(out, "[cpu-model]") || !strings.Contains(out, want) || strings.Contains(out, "status 0") {
			t.Errorf("%s: %s", model, out)
		}
	}
}
