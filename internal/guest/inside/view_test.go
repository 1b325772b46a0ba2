package inside

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
)

// guestFiles are those of a kernel with two sockets of a core with two threads each.
func guestFiles() map[string]string {
	const cpu, node = "sys/devices/system/cpu/", "sys/devices/system/node/"
	flags := "processor\t: 0\nmodel name\t: X\nflags\t\t: fpu sse topoext\n\nprocessor\t: 1\n"
	files := map[string]string{
		cpu + "online": "0-3\n", node + "online": "0-1\n", "proc/cpuinfo": flags,
		node + "node0/cpulist": "0-1\n",
		node + "node0/meminfo": "Node 0 MemTotal:       1004260 kB\nNode 0 MemFree: 7 kB\n",
		node + "node1/cpulist": "2-3\n", node + "node1/meminfo": "Node 1 MemTotal:       1032192 kB\n",
		"sys/devices/system/clocksource/clocksource0/current_clocksource": "kvm-clock\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":           "0\n",
		"sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages":        "0\n",
	}
	for n, set := range []string{"0-1", "0-1", "2-3", "2-3"} {
		dir := cpu + "cpu" + string(rune('0'+n)) + "/topology/"
		files[dir+"core_siblings_list"], files[dir+"thread_siblings_list"] = set+"\n", set+"\n"
	}
	return files
}

func TestReadView(t *testing.T) {
	pairs := []farm.CPUSet{farm.CPURange(0, 2), farm.CPURange(2, 4)}
	whole := func() farm.GuestView {
		return farm.GuestView{Sockets: pairs, Cores: pairs, Clock: "kvm-clock",
			Flags: []string{"fpu", "sse", "topoext"}, Pages: []farm.Bytes{2 * farm.MiB, farm.GiB},
			Nodes: []farm.GuestNode{{CPUs: pairs[0], Memory: 1004260 * farm.KiB},
				{CPUs: pairs[1], Memory: 1032192 * farm.KiB}}}
	}
	for name, c := range map[string]struct {
		change func(files map[string]string)
		want   func(v *farm.GuestView)
	}{
		"all":     {func(map[string]string) {}, func(*farm.GuestView) {}},
		"nothing": {func(files map[string]string) { clear(files) }, func(v *farm.GuestView) { *v = farm.GuestView{} }},
		"no NUMA": {func(files map[string]string) { delete(files, "sys/devices/system/node/online") },
			func(v *farm.GuestView) { v.Nodes = nil }},
		"a CPU tells less": {func(files map[string]string) {
			delete(files, "sys/devices/system/cpu/cpu2/topology/thread_siblings_list")
		}, func(v *farm.GuestView) { v.Cores = nil }},
		"flags without end": {func(files map[string]string) {
			files["proc/cpuinfo"] = "x\nflags : " +
				strings.Repeat("a ", 1<<16)
		}, func(v *farm.GuestView) { v.Flags = nil }},
	} {
		files := guestFiles()
		c.change(files)
		fsys := fstest.MapFS{}
		for name, text := range files {
			fsys[name] = &fstest.MapFile{Data: []byte(text)}
		}
		want := whole()
		c.want(&want)
		if diff := cmp.Diff(want, readView(fsys)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
