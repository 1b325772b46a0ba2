package flavor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/flavor"
	"github.com/grange-project/grange/internal/numa"
)

// classes gives, for OpenStack's names of what can be wrong, some words of our own message.
var classes = map[string]string{
	"CPUThreadPolicyConfigurationInvalid": "a thread policy (isolate) is for VMs with CPUs of their own",
	"ImageCPUPinningForbidden":            "the image asks for dedicated CPUs, the flavor gives shared ones",
	"ImageCPUThreadPolicyForbidden":       "the image asks for the thread policy require, the flavor for isolate",
	"ImageNUMATopologyAsymmetric":         "do not part into 3 equal NUMA cells",
	"ImageNUMATopologyCPUDuplicates":      "is in NUMA cells 0 and 1",
	"ImageNUMATopologyForbidden":          "the flavor says how many NUMA cells there are",
	"ImageNUMATopologyIncomplete":         "have their vCPUs said and",
	"ImageNUMATopologyMemoryOutOfRange":   "the NUMA cells have 1G of memory together, the VM 2G",
	"InvalidCPUAllocationPolicy":          `"foo" is not a CPU policy`,
	"InvalidEmulatorThreadsPolicy":        `"foo" is not a place for emulator threads`,
	"InvalidMixedInstanceDedicatedMask":   "is not a part of 4 vCPUs",
	"InvalidNUMANodesNumber":              `"-1" is not a number of NUMA cells`,
	"InvalidRequest":                      "resources:PCPU|say the same thing twice",
	"RealtimeConfigurationInvalid":        "real-time vCPUs are for VMs with CPUs of their own",
	"RequiredMixedInstancePolicy":         "hw:cpu_dedicated_mask is for the policy mixed only",
	"RequiredMixedOrRealtimeCPUMask":      "the policy mixed needs one mask",
}

// TestRecordedProperties plays the recorded flavors and images with the topology, or the error, that Nova 33.0.2 makes
// of them.
func TestRecordedProperties(t *testing.T) {
	var document struct {
		Cases []struct {
			VCPUs  int             `json:"vcpus"`
			Memory int             `json:"memory_mb"`
			Flavor map[string]any  `json:"extra_specs"`
			Image  map[string]any  `json:"image"`
			Expect json.RawMessage `json:"expect"`
		} `json:"constraints_cases"`
	}
	text, err := os.ReadFile("testdata/nova-cases.json")
	if err == nil {
		err = json.Unmarshal(text, &document)
	}
	if err != nil || len(document.Cases) != 29 {
		t.Fatalf("%d cases, want 29: %v", len(document.Cases), err)
	}
	for _, c := range document.Cases {
		vm := flavor.VM{VCPUs: c.VCPUs, Memory: farm.Bytes(c.Memory) * farm.MiB, Flavor: words(c.Flavor),
			Image: words(c.Image)}
		name := fmt.Sprintf("%d vCPUs, %v, image %v", c.VCPUs, c.Flavor, c.Image)
		var want struct{ Error string }
		_ = json.Unmarshal(c.Expect, &want)
		req, err := vm.Request()
		if want.Error != "" {
			own := new(farm.Error)
			if !errors.As(err, &own) || own.Hint == "" ||
				!slices.ContainsFunc(strings.Split(classes[want.Error], "|"),
					func(s string) bool { return s != "" && strings.Contains(own.Message, s) }) {
				t.Errorf("%s: got %v, want %s", name, err, want.Error)
			} else if strings.HasSuffix(want.Error, "Forbidden") != (own.Code == farm.CodePropertyConflict) {
				t.Errorf("%s: %s has code %s", name, want.Error, own.Code)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var wanted, got any
		_ = json.Unmarshal(c.Expect, &wanted)
		_ = json.Unmarshal(topologyOf(t, req), &got)
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// words writes typed properties as text, and lists as numbered ones.
func words(typed map[string]any) map[string]string {
	out := map[string]string{}
	for key, value := range typed {
		list, ok := value.([]any)
		if !ok {
			out[key] = fmt.Sprint(value)
			continue
		}
		for i, v := range list {
			out[fmt.Sprintf("%s.%d", key, i)] = strings.ReplaceAll(strings.Trim(fmt.Sprint(v), "[]"), " ", ",")
		}
	}
	return out
}

// topologyOf writes a request as the record does.
func topologyOf(t *testing.T, req numa.Request) []byte {
	t.Helper()
	if len(req.Each) == 0 {
		return []byte("null")
	}
	orNull := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	policy := "mixed"
	floating, all := 0, 0
	for _, c := range req.Each {
		floating, all = floating+c.Floating.Len(), all+c.VCPUs.Len()
	}
	switch floating {
	case 0:
		policy = "dedicated"
	case all:
		policy = ""
	}
	var cells []any
	for i, c := range req.Each {
		cell := map[string]any{"id": i, "vcpus_shared": append([]int{}, c.Floating.List()...),
			"vcpus_dedicated": append([]int{}, c.VCPUs.Minus(c.Floating).List()...), "memory_mb": c.Memory / farm.MiB,
			"pagesize_kb": nil, "cpu_policy": orNull(policy), "thread_policy": orNull(string(c.Threads))}
		if len(c.Pages) == 1 {
			cell["pagesize_kb"] = c.Pages[0] / farm.KiB
		}
		cells = append(cells, cell)
	}
	text, err := json.Marshal(map[string]any{"cells": cells, "emulator_threads": orNull(string(req.Emulator))})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func vm(vcpus int, properties ...string) flavor.VM {
	v := flavor.VM{VCPUs: vcpus, Memory: farm.Bytes(vcpus) * farm.GiB, Flavor: map[string]string{},
		Image: map[string]string{}}
	for _, p := range properties {
		key, value, _ := strings.Cut(p, "=")
		if strings.HasPrefix(key, "hw_") || key == "traits_required" {
			v.Image[key] = value
		} else {
			v.Flavor[key] = value
		}
	}
	return v
}

func TestProperties(t *testing.T) {
	for _, c := range []struct {
		vm   flavor.VM
		want func(numa.Request) bool
	}{
		{vm(4), func(r numa.Request) bool {
			return r.CPU == farm.Shared && r.Each == nil && r.VCPUs == 4 && r.Memory == 4*farm.GiB
		}},
		{vm(4, "hw:cpu_policy=dedicated", "hw:mem_page_size=large", "hw_mem_page_size=1GB"), pagesAre(farm.GiB)},
		{vm(4, "hw:mem_page_size=2MB"), pagesAre(2 * farm.MiB)},
		{vm(4, "hw:mem_page_size=any"), pagesAre(farm.GiB, 2*farm.MiB, 0)},
		{vm(4, "hw:mem_page_size=4"), pagesAre(0)},
		{vm(4, "trait:HW_CPU_HYPERTHREADING=forbidden", "resources:PCPU=4"),
			func(r numa.Request) bool { return r.Each[0].Threads == farm.IsolateCores && r.CPU == farm.Pinned }},
		{vm(4, "hw:cpu_policy=dedicated", "traits_required=HW_CPU_HYPERTHREADING"),
			func(r numa.Request) bool { return r.Threads == farm.RequireSiblings }},
		{vm(4, "hw:emulator_threads_policy=isolate", "resources:PCPU=5"),
			func(r numa.Request) bool { return r.Emulator == farm.EmulatorIsolate }},
		{vm(4, "resources:VCPU=4"), func(r numa.Request) bool { return r.CPU == farm.Shared }},
		{vm(4, "hw:cpu_policy=mixed", "hw:cpu_dedicated_mask=^0"),
			func(r numa.Request) bool { return r.Each[0].Floating.String() == "0" }},
		{vm(4, "hw:cpu_policy=mixed", "hw_cpu_policy=shared", "hw:cpu_dedicated_mask=0"),
			func(r numa.Request) bool { return r.Each[0].Floating.String() == "1-3" }},
		{vm(8, "hw:numa_nodes=2"), func(r numa.Request) bool {
			return len(r.Each) == 2 && r.Each[1].VCPUs.String() == "4-7" && r.Each[1].Memory == 4*farm.GiB &&
				r.CPU == farm.Shared
		}},
		{vm(8, "hw:watchdog_action=reset", "hw_disk_bus=virtio", "quota:cpu_shares=3"),
			func(r numa.Request) bool { return r.Each == nil }},
		{vm(8, "hw:cpu_sockets=2"), guestIs(2, 4, 1)},
		{vm(8, "hw:cpu_threads=2"), guestIs(1, 4, 2)},
		{vm(8, "hw:cpu_max_cores=2"), guestIs(4, 2, 1)},
		{vm(8, "hw:cpu_max_cores=2", "hw:cpu_max_threads=1"), guestIs(4, 2, 1)},
		{vm(8, "hw:cpu_max_sockets=2", "hw:cpu_sockets=2", "hw_cpu_max_sockets=1"), guestIs(1, 8, 1)},
		{vm(8, "hw:cpu_sockets=8", "hw_cpu_cores=4"), guestIs(2, 4, 1)},
		{vm(8), guestIs(0, 0, 0)},
	} {
		req, err := c.vm.Request()
		if err != nil || !c.want(req) {
			t.Errorf("%v image %v: %+v, %v", c.vm.Flavor, c.vm.Image, req, err)
		}
	}
}

func pagesAre(want ...farm.Bytes) func(numa.Request) bool {
	return func(r numa.Request) bool { return len(r.Each) == 1 && slices.Equal(r.Each[0].Pages, want) }
}

func guestIs(sockets, cores, threads int) func(numa.Request) bool {
	return func(r numa.Request) bool {
		return r.Guest == farm.GuestTopology{Sockets: sockets, Cores: cores, Threads: threads}
	}
}

func TestPropertiesRefused(t *testing.T) {
	for _, c := range []struct {
		vm   flavor.VM
		code farm.Code
		says string
	}{
		{vm(8, "hw:cpu_polcy=dedicated"), farm.CodeBadProperty, "hw:cpu_polcy"},
		{vm(8, "hw:numa_cpus.x=0"), farm.CodeBadProperty, "hw:numa_cpus.x"},
		{vm(0), farm.CodeBadProperty, "0 vCPUs"},
		{vm(8, "hw:cpu_max_sockets=1", "hw_cpu_max_sockets=2"), farm.CodePropertyConflict, "hw_cpu_max_"},
		{vm(8, "hw:cpu_max_sockets=1", "hw_cpu_sockets=2"), farm.CodePropertyConflict, "2 sockets"},
		{vm(8, "hw:cpu_max_cores=1", "hw:cpu_max_threads=1", "hw:cpu_max_sockets=4"), farm.CodeBadProperty, "8 vCPUs"},
		{vm(8, "hw:cpu_cores=many"), farm.CodeBadProperty, `"many" is not a number of cores`},
		{vm(8, "hw_mem_page_size=2048"), farm.CodePropertyConflict, "no choice"},
		{vm(8, "hw:mem_page_size=small", "hw_mem_page_size=2048"), farm.CodePropertyConflict, "small"},
		{vm(8, "hw:mem_page_size=3000"), farm.CodeBadProperty, "not a page size"},
		{vm(8, "hw:mem_page_size=0"), farm.CodeBadProperty, "not a page size"},
		{vm(8, "hw:numa_nodes=2", "hw:numa_cpus.0=0-3", "hw:numa_cpus.1=4-8", "hw:numa_mem.0=4096",
			"hw:numa_mem.1=4096"), farm.CodeBadProperty, "vCPU 8"},
		{vm(8, "hw:numa_nodes=2", "hw:numa_cpus.0=0-3", "hw:numa_cpus.1=4-6", "hw:numa_mem.0=4096",
			"hw:numa_mem.1=4096"), farm.CodeBadProperty, "no NUMA cell has 1 vCPU of the VM"},
		{vm(8, "hw:numa_nodes=2", "hw:numa_cpus.0=0-7", "hw:numa_cpus.1=", "hw:numa_mem.0=4096", "hw:numa_mem.1=4096"),
			farm.CodeBadProperty, "has no vCPU"},
		{vm(8, "hw:numa_nodes=2", "hw:numa_cpus.0=0-3", "hw:numa_cpus.1=4-7", "hw:numa_mem.0=4096",
			"hw:numa_mem.1=much"), farm.CodeBadProperty, "much"},
		{vm(8, "hw:numa_nodes=1", "hw:numa_cpus.0=0-7", "hw:numa_mem.0=8192", "hw_numa_mem.0=8192"),
			farm.CodePropertyConflict, "one by one"},
		{vm(8, "hw:emulator_threads_policy=isolate"), farm.CodeBadProperty, "emulator threads"},
		{vm(8, "hw:cpu_policy=dedicated", "hw:cpu_realtime=yes", "hw:cpu_realtime_mask=0-7"), farm.CodeBadProperty,
			"real-time"},
		{vm(8, "hw:cpu_policy=mixed", "hw_cpu_policy=dedicated", "hw:cpu_dedicated_mask=0"),
			farm.CodePropertyConflict, "mixed"},
		{vm(8, "resources:PCPU=4", "resources:VCPU=4"), farm.CodeBadProperty, "together"},
		{vm(8, "hw:cpu_policy=dedicated", "hw:cpu_thread_policy=avoid"), farm.CodeBadProperty, "avoid"},
		{vm(8, "resources:PCPU=8", "trait:HW_CPU_HYPERTHREADING=maybe"), farm.CodeBadProperty, "maybe"},
		{vm(8, "hw:cpu_policy=mixed", "hw:cpu_dedicated_mask=9-"), farm.CodeBadCPUList, "9-"},
	} {
		_, err := c.vm.Request()
		if own := new(farm.Error); !errors.As(err, &own) || own.Code != c.code ||
			!strings.Contains(own.Message, c.says) || own.Hint == "" {
			t.Errorf("%v image %v: %#v, want %s with %q", slices.Sorted(maps.Keys(c.vm.Flavor)), c.vm.Image, err,
				c.code, c.says)
		}
	}
}
