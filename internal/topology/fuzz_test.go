package topology_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/topology"
)

// small is a sound host of four CPUs, two cores, two nodes.
func small() fstest.MapFS {
	files := map[string]string{
		"proc/cpuinfo": "processor : 0\nvendor_id : GenuineIntel\ncpu family : 6\nmodel : 62\nmodel name : " +
			"X\nstepping : 4\nflags : fpu vmx\n\nprocessor : 1\nmodel name : Y\n",
		"proc/meminfo": "MemTotal: 8388608 kB\nMemFree: 4194304 kB\n",

		"sys/devices/system/cpu/online":                        "0-3\n",
		"sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "3400000\n",
		"sys/devices/system/node/online":                       "0-1\n",
		"sys/devices/system/node/node0/cpulist":                "0,2\n",
		"sys/devices/system/node/node1/cpumap":                 "0000000a\n",
		"sys/devices/system/node/node0/distance":               "10 20\n",
		"sys/devices/system/node/node1/distance":               "20 10\n",
		"sys/devices/system/node/node0/meminfo": "Node 0 MemTotal: 4194304 " +
			"kB\nNode 0 MemFree: 2097152 kB\n",
		"sys/devices/system/node/node1/meminfo": "Node 1 MemTotal: 4194304 " +
			"kB\nNode 1 MemFree: 2097152 kB\n",
		"sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages":   "512\n",
		"sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages": "500\n",
	}
	for _, cpu := range []string{"0", "1", "2", "3"} {
		dir := "sys/devices/system/cpu/cpu" + cpu + "/"
		odd := strings.Contains("13", cpu)
		files[dir+"topology/physical_package_id"] = map[bool]string{false: "0", true: "1"}[odd]
		files[dir+"topology/thread_siblings_list"] = map[bool]string{false: "0,2", true: "1,3"}[odd]
		files[dir+"cache/index3/level"] = "3"
		files[dir+"cache/index3/shared_cpu_list"] = map[bool]string{false: "0,2", true: "1,3"}[odd]
	}
	out := fstest.MapFS{}
	for name, text := range files {
		out[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

func TestReadSmall(t *testing.T) {
	got, err := topology.Read(small())
	if err != nil {
		t.Fatal(err)
	}
	set := farm.NewCPUSet
	want := farm.Topology{
		Online:  set(0, 1, 2, 3),
		Cores:   []farm.Core{{Socket: 0, Node: 0, Threads: set(0, 2)}, {Socket: 1, Node: 1, Threads: set(1, 3)}},
		Sockets: []farm.Socket{{ID: 0, CPUs: set(0, 2)}, {ID: 1, CPUs: set(1, 3)}},
		Nodes: []farm.Node{
			{ID: 0, CPUs: set(0, 2), Memory: 4 * farm.GiB, Free: 2 * farm.GiB,
				Pages: []farm.HugePages{{Size: 2 * farm.MiB, Total: 512, Free: 500}}},
			{ID: 1, CPUs: set(1, 3), Memory: 4 * farm.GiB, Free: 2 * farm.GiB},
		},
		L3: []farm.CPUSet{set(0, 2), set(1, 3)},
		CPU: farm.CPUModel{Vendor: "GenuineIntel", Name: "X", Family: 6, Model: 62, Stepping: 4,
			Flags: []string{"fpu", "vmx"}, MaxMHz: 3400},
		Distance: [][]int{{10, 20}, {20, 10}},
	}
	compare(t, "topology", want, got)
}

func TestReadRefuses(t *testing.T) {
	long := strings.Repeat("0-8191,", 5000)
	for name, c := range map[string]struct{ path, text string }{
		"no CPUs":             {"sys/devices/system/cpu/online", ""},
		"absurd CPU":          {"sys/devices/system/cpu/online", "0-4294967295"},
		"repeated list":       {"sys/devices/system/cpu/online", long},
		"words":               {"sys/devices/system/node/node0/cpulist", "all of them"},
		"backwards":           {"sys/devices/system/node/node0/cpulist", "3-1"},
		"negative":            {"sys/devices/system/node/node0/cpulist", "-1"},
		"huge file":           {"sys/devices/system/node/node0/cpulist", strings.Repeat("0", 1<<20)},
		"wide mask":           {"sys/devices/system/node/node1/cpumap", "1" + strings.Repeat(",00000000", 5000)},
		"not hexadecimal":     {"sys/devices/system/node/node1/cpumap", "xyz"},
		"absurd memory":       {"sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 99999999999999999999 kB\n"},
		"negative memory":     {"sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: -1 kB\n"},
		"memory without unit": {"sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 1\n"},
		"pages beyond memory": {"sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages",
			"70368744177664"},
		"negative pages":  {"sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "-1"},
		"no page size":    {"sys/devices/system/node/node0/hugepages/hugepages-3kB/nr_hugepages", "1"},
		"zero page size":  {"sys/devices/system/node/node0/hugepages/hugepages-0kB/nr_hugepages", "1"},
		"absurd node":     {"sys/devices/system/node/node99999999/cpulist", "0"},
		"absurd socket":   {"sys/devices/system/cpu/cpu0/topology/physical_package_id", "99999999999"},
		"absurd distance": {"sys/devices/system/node/node0/distance", "10 100000"},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := small()
			fsys[c.path] = &fstest.MapFile{Data: []byte(c.text)}
			_, err := topology.Read(fsys)
			var e *farm.Error
			if !errors.As(err, &e) || e.Code != farm.CodeBadTree {
				t.Errorf("got %v, want %s", err, farm.CodeBadTree)
			}
		})
	}
	if _, err := topology.Read(fstest.MapFS{}); err == nil {
		t.Error("an empty tree was read")
	}
}

// FuzzRead puts hostile text into two files of a sound tree: the answer is a topology that keeps its promises, or an
// error.
func FuzzRead(f *testing.F) {
	paths := slices.Sorted(maps.Keys(small()))
	paths = append(paths, "sys/devices/system/cpu/cpu0/online", "sys/devices/system/cpu/cpu9000/online",
		"sys/devices/system/cpu/cpu1/topology/core_cpus", "sys/devices/system/node/node7/meminfo",
		"sys/devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages")
	f.Add(uint8(0), "0-3,8\n", uint8(3), "00000000,ffffffff")
	f.Add(uint8(4), "-1", uint8(7), "Node 0 MemTotal: 18446744073709551615 kB")
	f.Add(uint8(5), "0-8191", uint8(9), "99999999999999999999999")
	f.Fuzz(func(t *testing.T, a uint8, one string, b uint8, two string) {
		fsys := small()
		fsys[paths[int(a)%len(paths)]] = &fstest.MapFile{Data: []byte(one)}
		fsys[paths[int(b)%len(paths)]] = &fstest.MapFile{Data: []byte(two)}
		got, err := topology.Read(fsys)
		if err == nil {
			checkWhole(t, got)
			return
		}
		var e *farm.Error
		if !errors.As(err, &e) {
			t.Errorf("%v is not a farm.Error", err)
		}
	})
}
