package generate

import (
	"fmt"
	"maps"
	"slices"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/flavor"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology"
)

// dimension is the values that some properties take together.
type dimension []map[string]string

// choices are a property's values, and the property left out.
func choices(name string, values ...string) dimension {
	out := dimension{{}}
	for _, v := range values {
		out = append(out, map[string]string{name: v})
	}
	return out
}

// flavorDimensions are small bounds for the properties of a flavor that say where a VM with CPUs of its own goes.
func flavorDimensions() []dimension {
	return []dimension{
		choices("hw:cpu_sockets", "1", "2", "4"),
		choices("hw:cpu_cores", "2", "3"),
		choices("hw:cpu_threads", "1", "2", "4"),
		choices("hw:cpu_max_sockets", "1", "2"),
		choices("hw:cpu_max_cores", "1", "2"),
		choices("hw:cpu_max_threads", "1", "2", "8"),
		choices("hw:cpu_thread_policy", "isolate", "require"),
		{
			{}, {"hw:numa_nodes": "1"}, {"hw:numa_nodes": "2"},
			cellsOf("0,1,4,5", "2,3,6,7"), cellsOf("0,2,4,6", "1,3,5,7"), cellsOf("0-2", "3-7"), cellsOf("0-1", "2-5"),
			cellsOf("0", "1-3"), cellsOf("0-3", "4-5,6-7"),
		},
	}
}

// cellsOf are two cells with these vCPUs, and 256 MiB for each vCPU.
func cellsOf(cpus ...string) map[string]string {
	out := map[string]string{"hw:numa_nodes": fmt.Sprint(len(cpus))}
	for i, text := range cpus {
		set, err := farm.ParseCPUSet(text)
		if err != nil {
			panic(err)
		}
		out[fmt.Sprintf("hw:numa_cpus.%d", i)] = text
		out[fmt.Sprintf("hw:numa_mem.%d", i)] = fmt.Sprint(256 * set.Len())
	}
	return out
}

// flavorHosts are hosts with one, two and four threads a core, of two nodes, of nodes within a socket, and of one node.
func flavorHosts() []farm.Topology {
	return []farm.Topology{
		topology.Grid{Sockets: 2, CoresPerNode: 8, Threads: 1, NodeMemory: 8 * farm.GiB}.Topology(),
		topology.Grid{Sockets: 2, CoresPerNode: 8, Threads: 2, NodeMemory: 8 * farm.GiB}.Topology(),
		topology.Grid{Sockets: 1, NodesPerSocket: 2, CoresPerNode: 4, Threads: 4,
			NodeMemory: 8 * farm.GiB}.Topology(),
	}
}

// Flavors plans every combination of the properties on each host, or one in so many of them. Each is refused with a
// reason, or gets a plan that keeps the rules.
func Flavors(oneIn int) Result {
	var r Result
	hosts, dims := flavorHosts(), flavorDimensions()
	n := 0
	for _, vcpus := range []int{1, 2, 3, 4, 6, 8} {
		combinations(dims, func(properties map[string]string) {
			if n++; n%oneIn != 0 {
				return
			}
			properties["hw:cpu_policy"] = "dedicated"
			vm := flavor.VM{VCPUs: vcpus, Memory: farm.Bytes(vcpus) * 256 * farm.MiB, Flavor: properties}
			for _, host := range hosts {
				r.add(flavorOn(vm, host), func() string { return flavorText(vm, host) })
			}
		})
	}
	return r
}

// combinations calls with each combination of the dimensions.
func combinations(dims []dimension, with func(map[string]string)) {
	at := make([]int, len(dims))
	for {
		properties := map[string]string{}
		for i, d := range dims {
			maps.Copy(properties, d[at[i]])
		}
		with(properties)
		i := 0
		for ; i < len(dims); i++ {
			if at[i]++; at[i] < len(dims[i]) {
				break
			}
			at[i] = 0
		}
		if i == len(dims) {
			return
		}
	}
}

func flavorText(vm flavor.VM, host farm.Topology) string {
	text := fmt.Sprintf("%d vCPUs on %d cores of %d threads", vm.VCPUs, len(host.Cores), host.Cores[0].Threads.Len())
	for _, key := range slices.Sorted(maps.Keys(vm.Flavor)) {
		text += fmt.Sprintf(" %s=%s", key, vm.Flavor[key])
	}
	return text
}

// flavorOn judges what becomes of a flavor on an empty host.
func flavorOn(vm flavor.VM, host farm.Topology) []error {
	req, err := vm.Request()
	if err != nil {
		return reason(err)
	}
	req.Allowed = host.Online
	plan, err := numa.Plan(numa.NewRoom(host, numa.Reserve{}, nil), req)
	if err != nil {
		return reason(err)
	}
	return newLedger(host).plan(req, plan)
}

// reason holds a refusal to have a message and a hint.
func reason(err error) []error {
	own, ok := err.(*farm.Error)
	if !ok || own.Message == "" || own.Hint == "" {
		return []error{fmt.Errorf("refused without a reason: %w", err)}
	}
	return nil
}
