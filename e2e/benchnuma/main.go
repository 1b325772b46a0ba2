// Command benchnuma measures the planner on one core: how many VMs a second it fits on a half-full host, how long it
// takes to refuse a VM that is one node short, and how well it packs recorded arrivals and departures. The last line is
// JSON. Beside each figure stands what was measured with OpenStack Nova 33.0.2, on two cores of the same kind of
// machine.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"text/tabwriter"

	"github.com/grange-project/grange/e2e/lastline"
)

// figures is the line at the end.
type figures struct {
	Fit32     float64                 `json:"fit_8_of_32_per_s"`
	Fit256    float64                 `json:"fit_8_of_256_per_s"`
	Refuse    float64                 `json:"refuse_8_cells_us"`
	Allocs32  float64                 `json:"allocs_per_fit_32"`
	Allocs256 float64                 `json:"allocs_per_fit_256"`
	Nova32    float64                 `json:"nova_fit_8_of_32_per_s"`
	Nova256   float64                 `json:"nova_fit_8_of_256_per_s"`
	NovaUS    float64                 `json:"nova_refuse_8_cells_us"`
	Traces    map[string]traceFigures `json:"traces"`
	Source    string                  `json:"nova_source"`
}

type traceFigures struct {
	Placed          float64 `json:"placed"` // percent
	RefusedWithRoom int     `json:"refused_with_room"`
	SharedCores     int     `json:"shared_cores"`
	Split           int     `json:"split"`
	NovaOrder       string  `json:"nova_order"` // the one that places most
	NovaPlaced      float64 `json:"nova_placed"`
	NovaRoom        int     `json:"nova_refused_with_room"`
	NovaShared      int     `json:"nova_shared_cores"`
	Source          string  `json:"nova_source"`
}

const source = "measured with OpenStack Nova 33.0.2"

// novaOrder is what Nova did with a trace under one order of hosts and cells.
type novaOrder struct {
	name                                  string
	vms                                   int
	placed                                float64
	refused, refusedWithRoom, sharedCores int
}

// nova holds the recorded figures; the last order of each trace places most.
var nova = []struct {
	trace  string
	orders []novaOrder
}{
	{"cern32_std", []novaOrder{{"spread", 288, 72.8, 118, 18, 0}, {"first fit", 310, 95.6, 64, 9, 0},
		{"best fit", 313, 99.5, 68, 5, 0}}},
	{"cern32_mem", []novaOrder{{"spread", 279, 68.3, 154, 31, 0}, {"first fit", 295, 84.5, 98, 23, 0},
		{"best fit", 300, 87.0, 97, 18, 0}}},
	{"cern32_odd", []novaOrder{{"spread", 531, 76.0, 191, 86, 104}, {"first fit", 556, 93.1, 134, 80, 178},
		{"best fit", 565, 97.2, 120, 71, 177}}},
	{"epyc256_std", []novaOrder{{"spread", 2497, 86.1, 606, 606, 0}, {"first fit", 2547, 100, 512, 115, 0},
		{"best fit", 2510, 100, 608, 46, 0}}},
}

func main() {
	rounds := flag.Int("rounds", 25, "timed rounds of each speed")
	flag.Parse()
	runtime.GOMAXPROCS(1)
	if err := run(max(*rounds, 1)); err != nil {
		fmt.Fprintln(os.Stderr, "benchnuma:", err)
		os.Exit(1)
	}
}

func run(rounds int) error {
	speeds, err := measureRates(rounds)
	if err != nil {
		return err
	}
	f := figures{
		Fit32: round(speeds.fit32.perSecond(), 1), Fit256: round(speeds.fit256.perSecond(), 1),
		Refuse:   round(speeds.refuse.median, 100),
		Allocs32: round(speeds.fit32.allocs, 10), Allocs256: round(speeds.fit256.allocs, 10),
		Nova32: 7450, Nova256: 6060, NovaUS: 182000, Source: source, Traces: map[string]traceFigures{},
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SPEED, IN CPU TIME OF ONE CORE\tMEDIAN\tQUARTILES\tALLOCATIONS\tNOVA 33")
	for _, row := range []struct {
		name string
		r    rate
		nova string
	}{
		{"fit 8 vCPUs, 32 threads half full", speeds.fit32, "7,450/s"},
		{"fit 8 vCPUs, 256 threads half full", speeds.fit256, "6,060/s"},
		{"refuse 8 cells on 8 nodes", speeds.refuse, "182,000 µs"},
	} {
		fmt.Fprintf(table, "%s\t%.2f µs = %.0f/s\t%.2f-%.2f µs\t%.1f\t%s\n", row.name, row.r.median, row.r.perSecond(),
			row.r.low, row.r.high, row.r.allocs, row.nova)
	}
	fmt.Fprintln(table, "\t\t\t\t")
	fmt.Fprintln(table, "TRACE, 100 HOSTS\tVMS\tPLACED\tREFUSED\tWITH ROOM\tSHARED CORES\tSPLIT")
	for _, n := range nova {
		p, err := replayNamed(n.trace)
		if err != nil {
			return err
		}
		best := n.orders[len(n.orders)-1]
		f.Traces[n.trace] = traceFigures{Placed: round(p.Placed, 100), RefusedWithRoom: p.RefusedWithRoom,
			SharedCores: p.SharedCores, Split: p.Split, NovaOrder: best.name, NovaPlaced: best.placed,
			NovaRoom: best.refusedWithRoom, NovaShared: best.sharedCores, Source: source}
		fmt.Fprintf(table, "%s\t%d\t%.2f %%\t%d (%d vCPUs)\t%d\t%d\t%d\n", n.trace, p.VMs, p.Placed, p.Refused,
			p.RefusedVCPUs, p.RefusedWithRoom, p.SharedCores, p.Split)
		for _, o := range n.orders {
			fmt.Fprintf(table, "  Nova, %s\t%d\t%.1f %%\t%d\t%d\t%d\t\n", o.name, o.vms, o.placed, o.refused,
				o.refusedWithRoom, o.sharedCores)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return lastline.Print(f, 0)
}

func replayNamed(name string) (packing, error) {
	t, err := readTrace(name)
	if err != nil {
		return packing{}, err
	}
	return replay(t)
}

// round is to parts of one.
func round(v float64, parts float64) float64 { return float64(int64(v*parts+0.5)) / parts }
