package topology_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/topology"
)

const (
	cpus  = "sys/devices/system/cpu/"
	nodes = "sys/devices/system/node/"
)

// odd is a tree of these files and a little memory.
func odd(files map[string]string) fstest.MapFS {
	out := fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal: 1048576 kB\nMemFree: 1024 kB\n")}}
	for name, text := range files {
		out[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

// each gives n CPUs a file; "%d" in its text is the number of the CPU.
func each(files map[string]string, n int, name, text string) {
	for cpu := range n {
		if strings.Contains(text, "%") {
			files[fmt.Sprintf("%scpu%d/%s", cpus, cpu, name)] = fmt.Sprintf(text, cpu)
			continue
		}
		files[fmt.Sprintf("%scpu%d/%s", cpus, cpu, name)] = text
	}
}

// picture is a topology in one line.
func picture(t farm.Topology) string {
	var b strings.Builder
	fmt.Fprintf(&b, "online %v", t.Online)
	for _, s := range t.Sockets {
		fmt.Fprintf(&b, "; socket %d %v", s.ID, s.CPUs)
	}
	for _, c := range t.Cores {
		fmt.Fprintf(&b, "; core %v", c.Threads)
		if c.Kind != "" {
			fmt.Fprintf(&b, " %s", c.Kind)
		}
	}
	for _, s := range t.L3 {
		fmt.Fprintf(&b, "; L3 %v", s)
	}
	return b.String()
}

// TestReadOdd has what real machines of every kind say: each of these was seen somewhere.
func TestReadOdd(t *testing.T) {
	for name, c := range map[string]struct {
		files          func(f map[string]string)
		want           string
		noCore, noSock bool
	}{
		"package number -1, as of boards without firmware": {func(f map[string]string) {
			each(f, 2, "topology/physical_package_id", "-1")
			each(f, 2, "topology/thread_siblings_list", "%d")
		}, "online 0-1; socket 0 0-1; core 0; core 1", false, true},
		"sets of packages, all with one number": {func(f map[string]string) {
			each(f, 2, "topology/physical_package_id", "-1")
			each(f, 2, "topology/core_siblings_list", "%d")
			each(f, 2, "topology/thread_siblings_list", "%d")
		}, "online 0-1; socket 0 0; socket 1 1; core 0; core 1", false, false},
		"package without cores, as on s390": {func(f map[string]string) { each(f, 2, "topology/core_siblings", "3") },
			"online 0-1; socket 0 0-1; core 0; core 1", true, false},
		"the new names go first": {func(f map[string]string) {
			each(f, 4, "topology/package_cpus", "f")
			each(f, 4, "topology/core_siblings", "3")
			each(f, 4, "topology/core_cpus_list", "0-1")
			each(f, 4, "topology/thread_siblings_list", "0-3")
		}, "online 0-3; socket 0 0-3; core 0-1; core 2; core 3", false, false},
		"an offline CPU has no topology": {func(f map[string]string) {
			each(f, 3, "topology/thread_siblings_list", "%d")
			f[cpus+"cpu3/crash_notes"] = ""
		}, "online 0-2; socket 0 0-2; core 0; core 1; core 2", false, true},
		"two cores of a Bulldozer module": {func(f map[string]string) {
			f["proc/cpuinfo"] = "processor : 0\nvendor_id : AuthenticAMD\ncpu family : 21\nmodel name : Opteron\n"
			each(f, 2, "topology/thread_siblings", "3")
			each(f, 2, "topology/core_id", "%d")
		}, "online 0-1; socket 0 0-1; core 0; core 1", false, true},
		"the same on a processor with SMT": {func(f map[string]string) {
			f["proc/cpuinfo"] = "processor : 0\nvendor_id : AuthenticAMD\ncpu family : 23\nmodel name : EPYC\n"
			each(f, 2, "topology/thread_siblings", "3")
			each(f, 2, "topology/core_id", "%d")
		}, "online 0-1; socket 0 0-1; core 0-1", false, true},
		"an Itanium's cache without CPUs": {func(f map[string]string) {
			each(f, 2, "topology/thread_siblings", "3")
			each(f, 2, "cache/index3/level", "3")
			each(f, 2, "cache/index3/shared_cpu_map", "0")
		}, "online 0-1; socket 0 0-1; core 0-1; L3 0-1", false, true},
		"an instruction cache is no L3": {func(f map[string]string) {
			each(f, 1, "topology/thread_siblings", "1")
			each(f, 1, "cache/index3/level", "3")
			each(f, 1, "cache/index3/type", "Instruction")
			each(f, 1, "cache/index3/shared_cpu_map", "1")
		}, "online 0; socket 0 0; core 0", false, true},
		"caches that cut through each other": {func(f map[string]string) {
			each(f, 3, "topology/thread_siblings_list", "%d")
			each(f, 3, "cache/index3/level", "3")
			f[cpus+"cpu0/cache/index3/shared_cpu_list"] = "0-1"
			f[cpus+"cpu1/cache/index3/shared_cpu_list"] = "1-2"
			f[cpus+"cpu2/cache/index3/shared_cpu_list"] = "1-2"
		}, "online 0-2; socket 0 0-2; core 0; core 1; core 2; L3 0-1", false, true},
		"fast and slow cores of Intel": {func(f map[string]string) {
			each(f, 3, "topology/thread_siblings_list", "%d")
			f["sys/devices/cpu_core/cpus"], f["sys/devices/cpu_atom/cpus"] = "0-1", "2"
		}, "online 0-2; socket 0 0-2; core 0 performance; core 1 performance; core 2 efficient", false, true},
		"fast and slow cores of ARM": {func(f map[string]string) {
			each(f, 2, "topology/thread_siblings_list", "%d")
			f[cpus+"cpu0/cpu_capacity"], f[cpus+"cpu1/cpu_capacity"] = "446", "1024"
		}, "online 0-1; socket 0 0-1; core 0 efficient; core 1 performance", false, true},
		"all cores alike": {func(f map[string]string) {
			each(f, 2, "topology/thread_siblings_list", "%d")
			each(f, 2, "cpu_capacity", "1024")
		}, "online 0-1; socket 0 0-1; core 0; core 1", false, true},
		"/proc/cpuinfo alone": {func(
			f map[string]string) {
			f["proc/cpuinfo"] = "processor\t: 0\ncpu\t\t: Cell\n\nprocessor\t: 1\n"
		},
			"online 0-1; socket 0 0-1; core 0; core 1", true, true},
		"/proc/cpuinfo of s390": {func(f map[string]string) {
			f["proc/cpuinfo"] = "vendor_id : IBM/S390\nprocessor 0: version = FF\nprocessor 1: version = FF\n"
		},
			"online 0-1; socket 0 0-1; core 0; core 1", true, true},
		"/proc/cpuinfo that numbers none": {func(
			f map[string]string) {
			f["proc/cpuinfo"] = "cpu : Alpha\ncpu model : EV56\n"
		},
			"online 0; socket 0 0; core 0", true, true},
		"caches of a device tree": {func(f map[string]string) {
			each(f, 4, "topology/thread_siblings_list", "%d")
			for core := range 2 {
				dir := fmt.Sprintf("proc/device-tree/cpus/PowerPC,POWER7@%d/", core)
				l2, l3 := string([]byte{0, 0, 2, byte(core)}), string([]byte{0, 0, 3, byte(core)})
				f[dir+"device_type"], f[dir+"reg"], f[dir+"l2-cache"] = "cpu\x00", "\x00\x00\x00\x00", l2
				f[dir+"ibm,ppc-interrupt-server#s"] = string([]byte{0, 0, 0, byte(2 * core), 0, 0, 0, byte(2*core + 1)})
				dir = fmt.Sprintf("proc/device-tree/cpus/l2-cache@%d/", core)
				f[dir+"device_type"], f[dir+"ibm,phandle"], f[dir+"l2-cache"] = "cache\x00", l2, l3
				dir = fmt.Sprintf("proc/device-tree/cpus/l3-cache@%d/", core)
				f[dir+"device_type"], f[dir+"ibm,phandle"] = "cache\x00", l3
			}
		}, "online 0-3; socket 0 0-3; core 0; core 1; core 2; core 3; L3 0-1; L3 2-3", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{}
			c.files(files)
			got, err := topology.Read(odd(files))
			if err != nil {
				t.Fatal(err)
			}
			compare(t, "topology", c.want, picture(got))
			if got.CoresUntold != c.noCore || got.SocketsUntold != c.noSock {
				t.Errorf("cores untold %v, sockets untold %v", got.CoresUntold, got.SocketsUntold)
			}
			checkWhole(t, got)
		})
	}
}

// TestReadKnightsLanding has the modes of its fast memory: a cache, a node of its own, and half of each.
func TestReadKnightsLanding(t *testing.T) {
	const dump = "var/run/hwloc/knl_memoryside_cache"
	for name, c := range map[string]struct {
		dump string
		flat farm.Bytes // of the node without CPUs; 0 when there is none
		want string
	}{
		"told: cache":                     {"version: 2\ncluster_mode: All2All\nmemory_mode: Cache\n", 0, "; L3 0-1"},
		"told: hybrid":                    {"memory_mode: Hybrid50\n", 8 * farm.GiB, "; L3 0-1"},
		"told: flat":                      {"memory_mode: Flat\n", 8 * farm.GiB, ""},
		"untold: no node, so it is cache": {"", 0, "; L3 0-1"},
		"untold: half":                    {"", 8 * farm.GiB, "; L3 0-1"},
		"untold: all is a node":           {"", 16*farm.GiB - 20*farm.MiB, ""},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"proc/cpuinfo": "processor : 0\nvendor_id : GenuineIntel\ncpu family : " +
				"6\nmodel : 87\nmodel name : Phi\n", nodes + "node0/cpumap": "3",
				nodes + "node0/meminfo": "Node 0 MemTotal: 99999 kB\n"}
			each(files, 2, "topology/thread_siblings", "3")
			if c.dump != "" {
				files[dump] = c.dump
			}
			if c.flat > 0 {
				files[nodes+"node1/cpumap"], files[nodes+"node1/meminfo"] = "0", fmt.Sprintf("Node 1 MemTotal: %d kB\n",
					c.flat/farm.KiB)
			}
			got, err := topology.Read(odd(files))
			if err != nil {
				t.Fatal(err)
			}
			compare(t, "topology", "online 0-1; socket 0 0-1; core 0-1"+c.want, picture(got))
		})
	}
}

// TestReadLeavesOutGPUs: memory of a GPU is a node on POWER9, and nobody's but the GPU's.
func TestReadLeavesOutGPUs(t *testing.T) {
	files := map[string]string{nodes + "online": "0,8,255",
		"proc/driver/nvidia/gpus/0004:04:00.0/numa_status": "Node: 255\nStatus: online\n"}
	each(files, 2, "topology/thread_siblings_list", "%d")
	for i, id := range []int{0, 8, 255} {
		dir := fmt.Sprintf("%snode%d/", nodes, id)
		files[dir+"cpulist"] = []string{"0", "1", ""}[i]
		files[dir+"meminfo"] = fmt.Sprintf("Node %d MemTotal: 1024 kB\n", id)
		files[dir+"distance"] = []string{"10 40 80", "40 10 81", "80 81 10"}[i]
	}
	got, err := topology.Read(odd(files))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Nodes) != 2 || got.Nodes[1].ID != 8 {
		t.Errorf("nodes %+v", got.Nodes)
	}
	compare(t, "distances", [][]int{{10, 40}, {40, 10}}, got.Distance)
}

// TestReadWithoutMemory: a tree that tells nothing of memory is read; a planner then finds no room on it.
func TestReadWithoutMemory(t *testing.T) {
	files := odd(map[string]string{cpus + "cpu0/topology/core_id": "0"})
	delete(files, "proc/meminfo")
	got, err := topology.Read(files)
	if err != nil || len(got.Nodes) != 1 || got.Nodes[0].Memory != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestOverlappingNodes: firmware that gives CPUs to several nodes is not believed; a node within another is.
func TestOverlappingNodes(t *testing.T) {
	for name, c := range map[string]struct {
		lists []string // of each node
		want  string   // nodes with their CPUs
		lost  int
	}{
		"the same CPUs": {[]string{"0-3", "0-3", "0-3"}, "0:0-3", 2},
		"crossing":      {[]string{"0-2", "2-3"}, "0:0-3", 1},
		"a chain":       {[]string{"0-1", "2-3", "1-2"}, "0:0-3", 2},
		"nested":        {[]string{"0-3", "0-1", "2-3"}, "0:0-3 1:0-1 2:2-3", 0},
		"disjoint":      {[]string{"0-1", "2-3"}, "0:0-1 1:2-3", 0},
		"memory only":   {[]string{"0-3", "", ""}, "0:0-3 1: 2:", 0},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{}
			each(files, 4, "topology/core_cpus_list", "%d")
			for i, list := range c.lists {
				files[fmt.Sprintf("%snode%d/cpulist", nodes, i)] = list + "\n"
				files[fmt.Sprintf("%snode%d/meminfo", nodes, i)] = fmt.Sprintf("Node %d MemTotal: 1024 kB\n", i)
				files[fmt.Sprintf("%snode%d/distance", nodes, i)] = strings.TrimSpace(strings.Repeat("10 ",
					len(c.lists)))
			}
			got, err := topology.Read(odd(files))
			if err != nil {
				t.Fatal(err)
			}
			var words []string
			for _, n := range got.Nodes {
				words = append(words, fmt.Sprintf("%d:%v", n.ID, n.CPUs))
			}
			if text := strings.Join(words, " "); text != c.want || len(got.Overlapping) != c.lost {
				t.Errorf("nodes %q and %d left out, want %q and %d", text, len(got.Overlapping), c.want, c.lost)
			}
			if len(got.Distance) != len(got.Nodes) || len(got.Distance[0]) != len(got.Nodes) {
				t.Errorf("distances %v of %d nodes", got.Distance, len(got.Nodes))
			}
		})
	}
}
