package chart

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
)

var update = flag.Bool("update", false, "write golden files anew")

// machine makes a host: sockets of nodes of caches of cores, with two threads a core that are numbered as Linux numbers
// them.
func machine(sockets, nodes, caches, cores int) farm.HostFacts {
	var t farm.Topology
	total := sockets * nodes * caches * cores
	var ids []int
	for s := range sockets {
		var socket farm.CPUSet
		for n := range nodes {
			var node farm.CPUSet
			for l := range caches {
				var shared farm.CPUSet
				for c := range cores {
					first := ((s*nodes+n)*caches+l)*cores + c
					threads := farm.NewCPUSet(first, first+total)
					t.Cores = append(t.Cores, farm.Core{Socket: s, Node: s*nodes + n, Threads: threads})
					shared = shared.Or(threads)
					ids = append(ids, first, first+total)
				}
				t.L3 = append(t.L3, shared)
				node = node.Or(shared)
			}
			t.Nodes = append(t.Nodes, farm.Node{ID: s*nodes + n, CPUs: node, Memory: 64 * farm.GiB, Free: 5 * farm.GiB,
				Pages: []farm.HugePages{{Size: 2 * farm.MiB}, {Size: farm.GiB, Total: 40, Free: 12}}})
			socket = socket.Or(node)
		}
		t.Sockets = append(t.Sockets, farm.Socket{ID: s, CPUs: socket})
	}
	t.Online = farm.NewCPUSet(ids...)
	return farm.HostFacts{Topology: t}
}

func pinned(name string, cpus ...int) farm.Domain {
	d := farm.Domain{Name: name, Running: true, VCPUs: len(cpus), VCPUPins: map[int]farm.CPUSet{}}
	for i, cpu := range cpus {
		d.VCPUPins[i] = farm.NewCPUSet(cpu)
	}
	return d
}

func pictures() map[string]string {
	one := 1
	small := machine(2, 1, 1, 8)
	small.Domains = []farm.Domain{pinned("worker1", 0, 16, 1, 17), pinned("worker2", 1, 17), pinned("off", 8, 24),
		{Name: "floating", Running: true, VCPUs: 32}}
	small.Domains[2].Running = false
	small.Isolated = farm.NewCPUSet(15, 31)
	marks := []Mark{{Level: Fault, Text: "two VMs on one CPU", CPUs: farm.NewCPUSet(1, 17)},
		{Level: Warning, Text: "pages are uneven", Node: &one}, {Level: Advice, Text: "no guest NUMA", VM: "floating"}}
	odd := machine(1, 1, 1, 2)
	odd.Topology.L3 = nil
	odd.Topology.Nodes = append(odd.Topology.Nodes, farm.Node{ID: 2, Memory: 512 * farm.GiB, Free: 300 * farm.GiB},
		farm.Node{ID: 3})
	odd.Domains = []farm.Domain{pinned(`</title><script>alert("1")</script>`+"\x1b[31m", 0)}
	hybrid := machine(1, 1, 1, 6)
	for cpu := 12; cpu < 20; cpu++ {
		hybrid.Topology.Cores = append(hybrid.Topology.Cores, farm.Core{Threads: farm.NewCPUSet(cpu)})
		hybrid.Topology.Online = hybrid.Topology.Online.Or(farm.NewCPUSet(cpu))
	}
	hybrid.Topology.L3 = []farm.CPUSet{hybrid.Topology.Online}
	hybrid.Topology.Nodes[0].Free = 0
	return map[string]string{
		"hybrid":     Host(hybrid, []Mark{{Level: Warning, CPUs: hybrid.Topology.Online}}),
		"threads32":  Host(small, marks),
		"threads256": Host(machine(2, 4, 2, 8), nil),
		"odd":        Host(odd, []Mark{{Level: Fault, Text: `<b onclick="x">`, CPUs: farm.NewCPUSet(1)}}),
		"nothing":    Host(farm.HostFacts{}, []Mark{{Level: Fault, CPUs: farm.NewCPUSet(1)}}),
	}
}

func TestPictures(t *testing.T) {
	for name, got := range pictures() {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", name+".svg")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("the picture changed; -update writes it anew\n%s", d)
			}
			wellFormed(t, got)
		})
	}
}

// wellFormed reads the picture as XML, and looks for what a picture must not hold.
func wellFormed(t *testing.T, svg string) {
	t.Helper()
	for decoder := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if name := start.Name.Local; name == "script" || name == "b" || name == "image" || name == "use" ||
			name == "a" {
			t.Errorf("the picture has a <%s>", name)
		}
		for _, a := range start.Attr {
			if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "href" {
				t.Errorf("the picture has an attribute %s", a.Name.Local)
			}
		}
	}
}

// Every thread is drawn once, at a place of its own, within the picture.
func TestEveryThreadHasItsPlace(t *testing.T) {
	for _, h := range []farm.HostFacts{machine(1, 1, 1, 1), machine(2, 1, 1, 8), machine(2, 4, 2, 8),
		machine(4, 2, 1, 28), machine(8, 1, 4, 8)} {
		svg := Host(h, nil)
		for _, cpu := range h.Topology.Online.List() {
			if n := strings.Count(svg, fmt.Sprintf("<title>CPU %d</title>", cpu)); n != 1 {
				t.Fatalf("%s: CPU %d is drawn %d times", label(h.Topology), cpu, n)
			}
		}
		var width, height int
		if _, err := fmt.Sscanf(svg[strings.Index(svg, "viewBox"):], `viewBox="-1 -1 %d %d"`, &width,
			&height); err != nil {
			t.Fatal(err)
		}
		if width > 1100 || height > 60+h.Topology.Online.Len()*30+300 {
			t.Errorf("%s: %d by %d", label(h.Topology), width, height)
		}
	}
}

func TestPinsOfAFloatingVM(t *testing.T) {
	h := machine(1, 1, 1, 2)
	if got := pins(h, farm.Domain{VCPUPins: map[int]farm.CPUSet{0: farm.NewCPUSet(0, 1, 2, 3, 9)}}); !got.Empty() {
		t.Errorf("a vCPU that may run everywhere is pinned to %v", got)
	}
	if got := pins(h, farm.Domain{VCPUPins: map[int]farm.CPUSet{0: farm.NewCPUSet(0, 2)}}); got.String() != "0,2" {
		t.Errorf("pinned to %v", got)
	}
}

func TestSize(t *testing.T) {
	for b, want := range map[farm.Bytes]string{0: "0 bytes", 1023: "1023 bytes", 2 * farm.MiB: "2 MiB",
		farm.GiB: "1 GiB", 64 * farm.GiB: "64 GiB", farm.GiB + farm.GiB/2: "1.5 GiB", 33030144 * farm.KiB: "32 GiB",
		5 * farm.TiB: "5 TiB"} {
		if got := size(b); got != want {
			t.Errorf("%d: %s, want %s", b, got, want)
		}
	}
}
