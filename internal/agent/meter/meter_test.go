package meter

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/vmimage"
)

// kernel is what a host's kernel says, with a QEMU of PID 17.
func kernel() fstest.MapFS {
	files := fstest.MapFS{}
	for path, text := range map[string]string{
		"proc/stat": "cpu  1000 10 200 5000 300 0 0 7 400 0\n",
		"proc/meminfo": "MemTotal: 8192 kB\nMemFree: 1024 kB\nMemAvailable: 2048 kB\n" +
			"SwapTotal: 4096 kB\nSwapFree: 1024 kB\n",
		"proc/vmstat":                     "pswpin 5\npswpout 6\n",
		"proc/swaps":                      "Filename Type Size Used Priority\n",
		"proc/pressure/io":                "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=500000\n",
		"sys/kernel/mm/ksm/run":           "1\n",
		"sys/kernel/mm/ksm/pages_sharing": "42\n",
		"proc/17/stat": "17 (qemu (a) b) S 1 17 17 0 -1 0 0 0 0 0 700 50 0 0 20 0 9 0 4711 0 256 " +
			strings.Repeat("0 ", 18) + "600 0\n",
		"proc/17/status": "Name:\tqemu\nVmSwap:\t     12 kB\n",
	} {
		files[path] = &fstest.MapFile{Data: []byte(text)}
	}
	return files
}

// fullHost is a host with something of everything, and n VMs.
func fullHost(n int) Host {
	var vms []VM
	for i := range n {
		vms = append(vms, VM{View: &api.VM{Name: fmt.Sprintf("grange-%08x", i), Purpose: "job", State: "running",
			Binds: []api.BoundBy{{Gateway: "virtiofs"}}}, PID: 17, Started: 4711,
			Load: machine.Load{Waiting: .3, SwappedIn: 9}, Reports: true})
	}
	topology := farm.Topology{Online: farm.NewCPUSet(0, 1, 2, 3), Nodes: []farm.Node{{ID: 0, Memory: 8 * farm.GiB,
		Pages: []farm.HugePages{{Size: 2 * farm.MiB, Total: 512, Free: 100}}}}}
	return Host{Version: "1", Accelerator: func() string { return "tcg, for there is no KVM" }, Kernel: kernel(),
		VMs: func() []VM { return vms }, Known: func() bool { return true }, TakesVMs: func() bool { return true },
		BackOffs: func() []api.BackOff { return []api.BackOff{{Kind: "image"}} },
		Room: func() (numa.Room, int) {
			return numa.Room{Topology: topology, Free: farm.NewCPUSet(1),
				Reserve: numa.Reserve{CPUs: farm.NewCPUSet(0)},
				Nodes:   map[int]numa.NodeRoom{0: {Memory: farm.GiB, Pages: map[farm.Bytes]int{2 * farm.MiB: 7}}}}, 2
		},
		Topology: func() farm.Topology { return topology },
		Disks:    func() (farm.DiskSpace, error) { return farm.DiskSpace{Pool: 100, Free: 40}, nil },
		Images: func() ([]vmimage.Image, error) {
			i := vmimage.Image{Kind: vmimage.Disk, Digest: "a", Size: 5}
			return []vmimage.Image{i, i}, nil // one image with two names
		},
		Daemon: func() hyper.Daemon { return hyper.Daemon{Answer: 20 * time.Millisecond} },
		Link:   func() (bool, bool) { return false, true }, PerVM: func() bool { return true }}
}

func scrape(t *testing.T, m *Meter, hidden ...string) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler(hidden...).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatal(w.Code, w.Body)
	}
	return w.Body.String()
}

func TestFigures(t *testing.T) {
	m := New(fullHost(1))
	m.Phase("boot", 1500*time.Millisecond)
	m.Phase("job", time.Hour)
	m.Start(Job, nil)
	m.Start(Job, errors.New("the caller has gone"))
	m.Start(Cloud, &farm.Error{Code: farm.CodeNoRoom})
	m.Failed(fmt.Errorf("x: %w", &farm.Error{Code: farm.CodeNoRoom}))
	m.Failed(errors.New("x"))
	m.Ended(time.Second, false)
	m.Ended(time.Minute, false)
	text := scrape(t, m)
	for _, line := range []string{
		`grange_agent_info{accelerator="tcg",version="1"} 1`,
		`grange_agent_link_up 0`, `grange_agent_takes_vms 1`, `grange_agent_back_offs{kind="image"} 1`,
		`grange_agent_back_offs{kind="host"} 0`,
		`grange_agent_vms{kind="job",state="running"} 1`, `grange_agent_vms{kind="cloud",state="running"} 0`,
		`grange_agent_vms_alarming{what="swapping"} 0`, `grange_agent_vms_alarming{what="io-wait"} 1`,
		`grange_agent_vms_reporting 1`, `grange_vm_guest_io_wait_ratio{vm="grange-00000000"} 0.3`,
		`grange_agent_start_phase_seconds_sum{phase="boot"} 1.5`,
		`grange_agent_starts_total{kind="job",result="started"} 1`, `grange_agent_starts_total{kind="job",result="left"} 1`,
		`grange_agent_starts_total{kind="cloud",result="failed"} 1`,
		`grange_agent_starts_total{kind="job",result="failed"} 0`, `grange_agent_failures_total{code="no-such-image"} 0`,
		`grange_agent_failures_total{code="no-room"} 1`, `grange_agent_failures_total{code="internal"} 1`,
		`grange_agent_jobs_total{result="ok"} 0`, `grange_agent_jobs_total{result="failed"} 1`,
		`grange_agent_jobs_total{result="failed-at-once"} 1`,
		`grange_agent_hypervisor_up 1`, `grange_agent_hypervisor_answer_seconds 0.02`,
		`grange_agent_bound_directories{gateway="virtiofs"} 1`,
		`grange_agent_cpus{state="online"} 4`, `grange_agent_cpus{state="reserved"} 1`, `grange_agent_cpus{state="free"} 1`,
		`grange_agent_node_memory_bytes{node="0",state="total"} 7.516192768e+09`,
		`grange_agent_node_huge_pages{node="0",size="2097152",state="free"} 7`,
		`grange_agent_waiting 2`, `grange_agent_disk_bytes{state="free"} 40`, `grange_agent_image_bytes 5`,
		`grange_host_cpu_seconds_total{mode="user"} 6`, `grange_host_cpu_seconds_total{mode="guest"} 4`,
		`grange_host_cpu_seconds_total{mode="iowait"} 3`,
		`grange_host_swap_bytes{state="used"} 3.145728e+06`, `grange_host_swap_pages_total{direction="in"} 5`,
		`grange_host_pressure_seconds_total{resource="io",tasks="some"} 1.5`,
		`grange_host_ksm_state 1`, `grange_host_ksm_pages{state="sharing"} 42`,
		`grange_vm_cpu_seconds_total{mode="guest",vm="grange-00000000"} 6`,
		`grange_vm_cpu_seconds_total{mode="user",vm="grange-00000000"} 1`,
		`grange_vm_cpu_seconds_total{mode="system",vm="grange-00000000"} 0.5`,
		`grange_vm_swap_bytes{vm="grange-00000000"} 12288`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
	for _, source := range []string{"agent", "minimum", "hypervisor", "vms", "ledger", "disks", "images", "kernel"} {
		if !strings.Contains(text, `grange_metrics_source_up{source="`+source+`"} 1`) {
			t.Errorf("source %s does not answer", source)
		}
	}
	if text := scrape(t, m, OfVMs); strings.Contains(text, "grange-0") {
		t.Error("VMs are shown that are to be hidden")
	}
}

// TestExportedAsDeclared: each series has the name and the labels of a declared metric, so that the document is right.
func TestExportedAsDeclared(t *testing.T) {
	m := New(fullHost(1))
	m.Phase("boot", 1)
	m.Failed(errors.New("x"))
	m.Start(Job, nil)
	families, err := m.Gather()
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string][]string{}
	for _, d := range m.Metrics() {
		declared[d.Name] = d.Labels
	}
	for _, f := range families {
		name := f.GetName()
		if !strings.HasPrefix(name, "grange_") {
			continue
		}
		for _, series := range f.GetMetric() {
			var labels []string
			for _, l := range series.GetLabel() {
				labels = append(labels, l.GetName())
			}
			want := slices.Sorted(slices.Values(declared[name]))
			if _, ok := declared[name]; !ok || !slices.Equal(labels, want) {
				t.Errorf("%s has labels %v, declared are %v", name, labels, want)
			}
		}
	}
}

// TestCardinality: the number of series does not follow the number of VMs, or is bounded where a site wants that.
func TestCardinality(t *testing.T) {
	count := func(n int, perVM bool) int {
		h := fullHost(n)
		h.PerVM = func() bool { return perVM }
		return strings.Count(scrape(t, New(h)), "\ngrange_")
	}
	one, many := count(1, false), count(1000, false)
	if one != many || one > 250 {
		t.Errorf("%d series with one VM, %d with a thousand", one, many)
	}
	if all := count(1000, true); all > one+10*most {
		t.Errorf("%d series with those of VMs, of which there are to be %d at most", all, most)
	}
}

// TestProcessOfAnother: the figures of a process that has the number of one that has gone are nobody's.
func TestProcessOfAnother(t *testing.T) {
	if p := readProcess(kernel(), 17, 4712); p != nil {
		t.Error(p)
	}
	if p := readProcess(kernel(), 18, 0); p != nil {
		t.Error(p)
	}
}
