package flavor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
)

// cpuWish is how a VM wants its CPUs.
type cpuWish struct {
	policy    string      // "", "shared", "dedicated" or "mixed"
	dedicated farm.CPUSet // vCPUs that get a host CPU each
	threads   farm.ThreadPolicy
	emulator  farm.EmulatorPolicy
}

func (v VM) cpu() (cpuWish, error) {
	var w cpuWish
	var err error
	if w.policy, err = v.policy(); err != nil {
		return w, err
	}
	threads, err := v.threads()
	if err != nil {
		return w, err
	}
	emulator := v.Flavor["hw:emulator_threads_policy"]
	if !slices.Contains([]string{"", "share", "isolate"}, emulator) {
		return w, badProperty("write share or isolate", "%q is not a place for emulator threads", emulator)
	}
	if emulator == "isolate" {
		w.emulator = farm.EmulatorIsolate
	}
	realtime, err := v.realtime(emulator)
	if err != nil {
		return w, err
	}
	mask, err := v.dedicatedMask()
	if err != nil {
		return w, err
	}
	if err := v.resources(&w.policy, emulator); err != nil {
		return w, err
	}
	if threads, err = v.hyperthreading(threads); err != nil {
		return w, err
	}
	w.threads = threadPolicy(threads)
	return w.dedicate(v, threads, realtime, mask)
}

// dedicate decides which vCPUs get a host CPU each.
func (w cpuWish) dedicate(v VM, threads string, realtime, mask farm.CPUSet) (cpuWish, error) {
	if w.policy != "mixed" && !mask.Empty() {
		return w, badProperty("set hw:cpu_policy to mixed, or leave the mask out",
			"hw:cpu_dedicated_mask is for the policy mixed only")
	}
	switch w.policy {
	case "dedicated":
		w.dedicated = span(0, v.VCPUs)
	case "mixed":
		if mask.Empty() == realtime.Empty() {
			return w, badProperty("set either hw:cpu_dedicated_mask or hw:cpu_realtime_mask",
				"the policy mixed needs one mask that says which vCPUs are dedicated")
		}
		w.dedicated = mask.Or(realtime)
	default:
		const hint = "set hw:cpu_policy to dedicated, or leave it out"
		switch {
		case threads != "":
			return w, badProperty(hint, "a thread policy (%s) is for VMs with CPUs of their own", threads)
		case w.emulator == farm.EmulatorIsolate:
			return w, badProperty(hint, "isolated emulator threads are for VMs with CPUs of their own")
		case !realtime.Empty():
			return w, badProperty(hint, "real-time vCPUs are for VMs with CPUs of their own")
		}
	}
	return w, nil
}

// policy lets an image ask for no more than its flavor gives: dedicated is more than mixed, and mixed more than shared.
func (v VM) policy() (string, error) {
	flavor, image := v.both("cpu_policy")
	order := []string{"shared", "mixed", "dedicated"}
	for _, word := range []string{flavor, image} {
		if word != "" && !slices.Contains(order, word) {
			return "", badProperty("write shared, mixed or dedicated", "%q is not a CPU policy", word)
		}
	}
	if flavor == "" {
		return image, nil
	}
	if image != "" && slices.Index(order, image) > slices.Index(order, flavor) {
		return "", conflict("the image asks for %s CPUs, the flavor gives %s ones", image, flavor)
	}
	return flavor, nil
}

func (v VM) threads() (string, error) {
	flavor, image := v.both("cpu_thread_policy")
	for _, word := range []string{flavor, image} {
		if !slices.Contains([]string{"", "prefer", "isolate", "require"}, word) {
			return "", badProperty("write prefer, isolate or require", "%q is not a thread policy", word)
		}
	}
	switch {
	case flavor == "":
		return image, nil
	case flavor != "prefer" && image != "" && image != flavor:
		return "", conflict("the image asks for the thread policy %s, the flavor for %s", image, flavor)
	}
	return flavor, nil
}

// realtime are the vCPUs that want real-time scheduling; empty when none does. It says which vCPUs of a mixed VM are
// dedicated, and nothing else here: the planner gives every dedicated vCPU a CPU to itself anyway.
func (v VM) realtime(emulator string) (farm.CPUSet, error) {
	if !slices.Contains([]string{"1", "t", "true", "on", "y", "yes"}, strings.ToLower(v.Flavor["hw:cpu_realtime"])) {
		return farm.CPUSet{}, nil
	}
	mask, image := v.both("cpu_realtime_mask")
	if image != "" {
		mask = image
	}
	all := span(0, v.VCPUs)
	cpus := all
	if mask != "" {
		var err error
		if cpus, err = v.mask(mask); err != nil {
			return farm.CPUSet{}, err
		}
	}
	if cpus.Empty() || !cpus.Minus(all).Empty() || cpus.Equal(all) && emulator == "" {
		return farm.CPUSet{}, badProperty(
			"name some of the VM's vCPUs in hw:cpu_realtime_mask, or give the emulator threads a place with "+
				"hw:emulator_threads_policy", "real-time vCPUs %q leave no vCPU for the rest, or are not of %d vCPUs",
			mask, v.VCPUs)
	}
	return cpus, nil
}

func (v VM) dedicatedMask() (farm.CPUSet, error) {
	text := v.Flavor["hw:cpu_dedicated_mask"]
	if text == "" {
		return farm.CPUSet{}, nil
	}
	cpus, err := v.mask(text)
	if err != nil {
		return farm.CPUSet{}, err
	}
	all := span(0, v.VCPUs)
	if cpus.Empty() || cpus.Equal(all) || !cpus.Minus(all).Empty() {
		return farm.CPUSet{}, badProperty(
			"name some of the VM's vCPUs, and not all: with all of them the policy is dedicated",
			"hw:cpu_dedicated_mask %q is not a part of %d vCPUs", text, v.VCPUs)
	}
	return cpus, nil
}

// mask reads a list of vCPUs; one that begins with an exclusion starts from all of them.
func (v VM) mask(text string) (farm.CPUSet, error) {
	if strings.HasPrefix(strings.TrimSpace(text), "^") {
		text = fmt.Sprintf("0-%d,%s", v.VCPUs-1, text)
	}
	return parseCPUs(text)
}

// parseCPUs reads OpenStack's lists of CPUs: "0-3,^1", where ^ takes CPUs out again wherever it stands.
func parseCPUs(text string) (farm.CPUSet, error) {
	var in, out []string
	for part := range strings.SplitSeq(text, ",") {
		if excluded, ok := strings.CutPrefix(strings.TrimSpace(part), "^"); ok {
			out = append(out, excluded)
		} else {
			in = append(in, part)
		}
	}
	cpus, err := farm.ParseCPUSet(strings.Join(in, ","))
	if err != nil {
		return cpus, err
	}
	excluded, err := farm.ParseCPUSet(strings.Join(out, ","))
	return cpus.Minus(excluded), err
}

var (
	pcpuKey  = lazyregexp.New(`^resources([1-9][0-9]*)?:PCPU$`)
	vcpuKey  = lazyregexp.New(`^resources([1-9][0-9]*)?:VCPU$`)
	traitKey = lazyregexp.New(`^trait([1-9][0-9]*)?:HW_CPU_HYPERTHREADING$`)
)

// resources is the other way to say a policy: by counting dedicated (PCPU) or shared (VCPU) CPUs.
func (v VM) resources(policy *string, emulator string) error {
	dedicated, shared := v.sum(pcpuKey), v.sum(vcpuKey)
	want := v.VCPUs
	if emulator == "isolate" {
		want++
	}
	switch {
	case dedicated == 0 && shared == 0:
		return nil
	case *policy != "":
		return badProperty("leave one of them out",
			"hw:cpu_policy and resources:PCPU or resources:VCPU say the same thing twice")
	case dedicated > 0 && shared > 0:
		return badProperty("leave one of them out", "resources:PCPU and resources:VCPU cannot be asked for together")
	case dedicated > 0 && dedicated != want:
		return badProperty(fmt.Sprintf("set resources:PCPU to %d", want),
			"resources:PCPU is %d, and the VM takes %d dedicated CPUs", dedicated, want)
	case dedicated > 0:
		*policy = "dedicated"
	default:
		*policy = "shared"
	}
	return nil
}

func (v VM) sum(key *lazyregexp.Regexp) int {
	total := 0
	for name, value := range v.Flavor {
		if n, err := strconv.Atoi(value); err == nil && key.MatchString(name) {
			total += n
		}
	}
	return total
}

// hyperthreading is the other way to say a thread policy: by the trait that a host must or must not have.
func (v VM) hyperthreading(threads string) (string, error) {
	trait := ""
	for name, value := range v.Flavor {
		if traitKey.MatchString(name) {
			trait = value
		}
	}
	if slices.Contains(strings.Split(v.Image["traits_required"], ","), "HW_CPU_HYPERTHREADING") && trait == "" {
		trait = "required"
	}
	switch {
	case trait == "":
		return threads, nil
	case threads != "":
		return "", badProperty("leave one of them out",
			"the trait HW_CPU_HYPERTHREADING and a thread policy say the same thing twice")
	case trait == "forbidden":
		return "isolate", nil
	case trait == "required":
		return "require", nil
	}
	return "", badProperty("write required or forbidden", "%q is not what a trait can be", trait)
}
