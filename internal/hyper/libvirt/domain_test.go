package libvirt

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden is one case, testdata/NAME.json; the wanted domain is beside it, testdata/NAME.xml. Without Host the machine's
// own plan counts.
type golden struct {
	Accelerator Accelerator
	WhyTCG      string
	Host        *topology.Grid
	Pages       farm.Bytes // size of the huge pages that fill three quarters of each node
	Reserve     farm.CPUSet
	Shared      map[int]numa.SharedRoom // by node: the pools of VMs that float
	Requests    []numa.Request          // placed one after the other; the last one is the machine's
	Machine     hyper.Machine
	Warnings    []string
}

// goldens calls f for every case.
func goldens(t *testing.T, f func(t *testing.T, path string, g golden, m hyper.Machine)) {
	cases, err := filepath.Glob("testdata/*.json")
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases in testdata: %v", err)
	}
	for _, path := range cases {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		t.Run(name, func(t *testing.T) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var g golden
			if err := json.Unmarshal(b, &g); err != nil {
				t.Fatal(err)
			}
			f(t, strings.TrimSuffix(path, ".json")+".xml", g, g.machine(t))
		})
	}
}

func (g golden) machine(t *testing.T) hyper.Machine {
	t.Helper()
	if g.Host == nil {
		return g.Machine
	}
	host := g.Host.Topology()
	if g.Pages != 0 {
		for i, n := range host.Nodes {
			pages := int(n.Memory / g.Pages * 3 / 4)
			host.Nodes[i].Pages = []farm.HugePages{{Size: g.Pages, Total: pages, Free: pages}}
		}
	}
	reserve := numa.Reserve{CPUs: g.Reserve, Shared: g.Shared}
	var plans []farm.Plan
	for _, r := range g.Requests {
		if r.Allowed.Empty() {
			r.Allowed = host.Online
		}
		p, err := numa.Plan(numa.NewRoom(host, reserve, plans), r)
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, p)
	}
	m := g.Machine
	m.Plan = plans[len(plans)-1]
	return m
}

// distance is the host's as libvirt tells it.
func (g golden) distance() map[int]map[int]int {
	out := map[int]map[int]int{}
	if g.Host == nil {
		return out
	}
	t := g.Host.Topology()
	for i, from := range t.Nodes {
		out[from.ID] = map[int]int{}
		for j, to := range t.Nodes {
			out[from.ID][to.ID] = t.Distance[i][j]
		}
	}
	return out
}

func TestDomain(t *testing.T) {
	goldens(t, func(t *testing.T, path string, g golden, m hyper.Machine) {
		h := host{accel: g.Accelerator, whyTCG: g.WhyTCG, label: "+64055:+107", numa: true, hints: true, lists: true,
			qboot: qbootPaths[0], distance: g.distance()}
		if g.Host != nil {
			h.hardware = g.Host.Topology()
		}
		got, applied, err := h.domain(m)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(g.Warnings, applied.Warnings); diff != "" {
			t.Errorf("warnings (-want +got):\n%s", diff)
		}
		if *update {
			if err := os.WriteFile(path, []byte(got+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got+"\n"); diff != "" {
			t.Errorf("domain (-want +got; -update writes it):\n%s", diff)
		}
	})
}

// TestSchema holds the golden files to libvirt's own schema.
func TestSchema(t *testing.T) {
	tool, err := exec.LookPath("virt-xml-validate")
	if err != nil {
		t.Skip("skip schema: virt-xml-validate (libvirt-clients) is not installed")
	}
	if _, err := exec.LookPath("xmllint"); err != nil {
		t.Skip("skip schema: xmllint (libxml2-utils) is not installed")
	}
	goldens(t, func(t *testing.T, path string, _ golden, _ hyper.Machine) {
		if out, err := exec.Command(tool, path, "domain").CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

func TestDescribe(t *testing.T) {
	for _, data := range []string{"", "{}", "\x00\xff <&>"} {
		text := "<domain><metadata><other xmlns='x'/>" + metadataXML([]byte(data)) +
			"</metadata><devices><serial><source path='/a'/></serial>" +
			"<channel><source path='/b'/></channel><emulator>/q</emulator></devices>" +
			"<seclabel model='apparmor'><label>a-b</label></seclabel><seclabel " +
			"model='dac'><label>+7:+8</label></seclabel></domain>"
		got, err := describe(text)
		if err != nil || got.metadata == nil || string(got.metadata) != data {
			t.Errorf("metadata %q, %v; want %q", got.metadata, err, data)
		}
		if diff := cmp.Diff([]string{"/a", "/b"}, got.sockets); diff != "" || got.uid != 7 || got.emulator != "/q" {
			t.Errorf("user %d, emulator %q, sockets: %s", got.uid, got.emulator, diff)
		}
	}
	if got, err := describe("<domain><name>grange-x</name></domain>"); got.metadata != nil || err != nil {
		t.Errorf("a stranger's domain has metadata %q, %v", got.metadata, err)
	}
}

func TestDiskName(t *testing.T) {
	for i, want := range map[int]string{0: "vda", 25: "vdz", 26: "vdaa", 701: "vdzz", 702: "vdaaa"} {
		if got := diskName(i); got != want {
			t.Errorf("disk %d is %s, want %s", i, got, want)
		}
	}
}

func FuzzDescribe(f *testing.F) {
	f.Add("<domain><metadata>" + metadataXML([]byte("x")) + "</metadata></domain>")
	f.Fuzz(func(t *testing.T, text string) { describe(text) })
}
