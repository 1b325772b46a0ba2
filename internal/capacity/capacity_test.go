package capacity

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

// two are two hosts of 32 threads and 128 GiB.
func two() []Hosts {
	return []Hosts{{Kind: "cern", Count: 2, Topology: topologytest.CERN2630v3()}}
}

func hours(n float64) time.Duration { return time.Duration(n * float64(time.Hour)) }

func jobs(count, cpus int, memory farm.Bytes, wall time.Duration) (all []Job) {
	for range count {
		all = append(all, Job{Wall: wall, CPUs: cpus, Memory: memory})
	}
	return all
}

func replayed(t *testing.T, o Options) Report {
	t.Helper()
	r, err := Replay(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-6*max(1, math.Abs(b)) }

// TestBooks: each case puts one loss in, and finds that one.
func TestBooks(t *testing.T) {
	reserved := two()
	reserved[0].Reserve.CPUs = farm.NewCPUSet(0, 16)
	pieces := []Hosts{{Kind: "cern", Count: 1, Topology: topologytest.CERN2630v3()}}
	for _, c := range []struct {
		name string
		o    Options
		want Books
	}{
		{"idle", Options{Hosts: two(), Jobs: jobs(2, 32, 64*farm.GiB, hours(5))}, Books{Delivered: 320, Idle: 320}},
		{"still running", Options{Hosts: two(), Jobs: jobs(2, 32, 64*farm.GiB, hours(50))}, Books{Delivered: 640}},
		{"overhead", Options{Hosts: two(), Jobs: jobs(2, 32, 64*farm.GiB, hours(10)), Loss: Loss{{32, 0.125}}},
			Books{Delivered: 560, Overhead: 80}},
		{"reserved", Options{Hosts: reserved, Jobs: jobs(2, 30, 64*farm.GiB, hours(10))},
			Books{Delivered: 600, Reserved: 40}},
		{"mix", Options{Hosts: two(), Jobs: jobs(3, 24, 16*farm.GiB, hours(10))}, Books{Delivered: 480, Mix: 160}},
		{"memory", Options{Hosts: two(), Jobs: jobs(3, 16, 100*farm.GiB, hours(10))},
			Books{Delivered: 320, Memory: 320}},
		{"pieces", Options{Hosts: pieces, Shape: farm.Shape{Cells: 1},
			Jobs: append(jobs(2, 12, 8*farm.GiB, hours(10)), jobs(1, 8, 8*farm.GiB, hours(10))...)},
			Books{Delivered: 240, Pieces: 80}},
		{"beside", Options{Hosts: two(), Shape: farm.Shape{Threads: farm.IsolateCores},
			Jobs: jobs(2, 16, 16*farm.GiB, hours(10))}, Books{Delivered: 320, Beside: 320}},
		{"drained", Options{Hosts: two(), Outages: []Outage{{Host: 1, From: hours(2), To: hours(6)}}},
			Books{Drained: 128, Idle: 512}},
		{"broken", Options{Hosts: two(), Jobs: jobs(2, 32, 64*farm.GiB, hours(4)),
			Outages: []Outage{{Host: 1, From: hours(2), To: hours(3), Broken: true}}},
			Books{Delivered: 256, Repeated: 64, Broken: 32, Idle: 288}},
		{"VMs that stay", Options{Hosts: two(), VMCPUs: 12, Jobs: jobs(8, 6, 16*farm.GiB, hours(10)),
			Loss: Loss{{12, 0.1}}}, Books{Delivered: 432, Overhead: 48, Mix: 160}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Until = hours(10)
			got := replayed(t, c.o)
			c.want.Installed = 320 * float64(c.o.Hosts[0].Count)
			for what, pair := range map[string][2]float64{"installed": {got.Installed, c.want.Installed},
				"delivered": {got.Delivered, c.want.Delivered}, "overhead": {got.Overhead, c.want.Overhead},
				"repeated": {got.Repeated, c.want.Repeated}, "beside": {got.Beside, c.want.Beside},
				"reserved": {got.Reserved, c.want.Reserved}, "drained": {got.Drained, c.want.Drained},
				"broken": {got.Broken, c.want.Broken}, "pieces": {got.Pieces, c.want.Pieces},
				"memory": {got.Memory, c.want.Memory}, "mix": {got.Mix, c.want.Mix}, "idle": {got.Idle, c.want.Idle}} {
				if !near(pair[0], pair[1]) {
					t.Errorf("%s: %.3f CPU hours, want %.3f", what, pair[0], pair[1])
				}
			}
		})
	}
}

// TestRandomBooks: whatever happens to a farm, all of its CPU hours are somewhere.
func TestRandomBooks(t *testing.T) {
	mix, err := ParseMix("8x16G@6h=50,1x2G@3h=30,16x64G@12h=5,4x30G@1h=15")
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(6) {
		h := []Hosts{{Kind: "a", Count: 20, Topology: topologytest.CERN2630v3()},
			{Kind: "b", Count: 5, Topology: topologytest.EPYC256()}}
		h[0].Reserve.CPUs = farm.NewCPUSet(0)
		all, err := mix.Jobs(0.7+0.2*float64(seed), 20*32+5*256, hours(100), seed)
		if err != nil {
			t.Fatal(err)
		}
		o := Options{Hosts: h, Jobs: all, Until: hours(120), Loss: Loss{{1, 0.01}, {32, 0.13}},
			Outages: append(Breaks(0.05, 25, hours(8), hours(120), true, seed),
				Breaks(0.05, 25, hours(24), hours(120), false, seed+100)...)}
		if seed%3 == 2 {
			o.VMCPUs = 16
		}
		got := replayed(t, o)
		if !near(got.Installed, 120*(20*32+5*256)) || !near(got.Delivered+got.Lost(), got.Installed) {
			t.Errorf("%+v", got)
		}
		if got.Ended+got.Running+got.Waiting+got.Impossible != len(all) || got.Broken == 0 || got.Drained == 0 {
			t.Errorf("of %d jobs: %+v", len(all), got)
		}
	}
}

// TestImpossible: a job that no host ever takes is told, and no CPU is said to be lost for it.
func TestImpossible(t *testing.T) {
	got := replayed(t, Options{Hosts: two(), Jobs: jobs(3, 33, farm.GiB, hours(1)), Until: hours(1)})
	if got.Impossible != 3 || got.Waiting != 0 || got.Idle != 64 {
		t.Errorf("%+v", got)
	}
	got = replayed(t, Options{Hosts: two(), VMCPUs: 8, Jobs: jobs(1, 9, farm.GiB, hours(1)), Until: hours(1)})
	if got.Impossible != 1 || got.Nodes != 8 {
		t.Errorf("%+v", got)
	}
}

// TestNonsense: what cannot be replayed is refused.
func TestNonsense(t *testing.T) {
	back := []Job{{Submit: hours(1), CPUs: 1}, {CPUs: 1}}
	for name, o := range map[string]Options{
		"no time": {Hosts: two()}, "no hosts": {Until: hours(1)},
		"no such host": {Hosts: two(), Until: hours(1), Outages: []Outage{{Host: 2, To: hours(1)}}},
		"back in time": {Hosts: two(), Until: hours(1), Jobs: back},
		"too large":    {Hosts: two(), Until: hours(1), VMCPUs: 33},
		"no CPUs":      {Hosts: two(), Until: hours(1), Jobs: []Job{{}}},
	} {
		_, err := Replay(t.Context(), o)
		var own *farm.Error
		if !errors.As(err, &own) || own.Code != CodeDemand || own.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLoss(t *testing.T) {
	l, err := ParseLoss("32=12.9,8=2.5,16=8.4")
	if err != nil {
		t.Fatal(err)
	}
	for cpus, want := range map[int]float64{1: 0.025, 8: 0.025, 12: 0.0545, 16: 0.084, 32: 0.129, 64: 0.129} {
		if got := l.Of(cpus); !near(got, want) {
			t.Errorf("%d CPUs: %g", cpus, got)
		}
	}
	for _, text := range []string{"", "8", "8=x", "0=1", "8=100", "8=1,8=2", "8=NaN"} {
		if _, err := ParseLoss(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

func TestMix(t *testing.T) {
	for _, text := range []string{"", "8", "8x16G", "8x16G@x", "8x16G@6h=0", "x16G@6h", "8x@6h", "8x16G@1ms"} {
		if _, err := ParseMix(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

// TestChanges: what if.
func TestChanges(t *testing.T) {
	h := two()[0]
	if got := h.WithoutSMT(); got.Topology.Online.Len() != 16 || len(got.Topology.Cores) != 16 ||
		got.Topology.Nodes[1].CPUs.Len() != 8 || h.Topology.Online.Len() != 32 {
		t.Errorf("%+v", got.Topology)
	}
	h.Reserve.Memory = 8 * farm.GiB
	if got := h.WithPages(farm.GiB).Topology.Nodes[0].Pages; len(got) != 1 || got[0].Total != 60 {
		t.Errorf("%+v", got)
	}
	o := Options{Hosts: []Hosts{h.WithoutSMT().WithPages(farm.GiB)}, Until: hours(1),
		Shape: farm.Shape{Pages: []farm.Bytes{farm.GiB}}, Jobs: Asking(jobs(4, 8, 1, hours(1)), 3*farm.GiB)}
	if got := replayed(t, o); got.Delivered != 32 || got.MostMemory != 96*farm.GiB {
		t.Errorf("%+v", got)
	}
}
