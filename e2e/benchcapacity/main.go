// Command benchcapacity replays a month of jobs on a farm, and says how many a second.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/grange-project/grange/e2e/lastline"
	"github.com/grange-project/grange/internal/capacity"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/topology"
)

// figures are the last line.
type figures struct {
	Jobs       int     `json:"jobs"`
	Hosts      int     `json:"hosts"`
	Seconds    float64 `json:"seconds"`
	JobsPerS   float64 `json:"jobs_per_s"`
	Installed  float64 `json:"installed_cpu_hours"`
	Delivered  float64 `json:"delivered_cpu_hours"`
	Lost       float64 `json:"lost_cpu_hours"`
	Unbalanced float64 `json:"unbalanced_percent"` // of installed, that is neither delivered nor lost
	Ended      int     `json:"ended"`
	Waiting    int     `json:"waiting"`
}

// mix is what a grid site has: mostly jobs of 8 cores with 2 GiB a core, jobs of one core, and some with much memory.
const mix = "8x16G@18h=60,1x2G@9h=25,4x8G@6h=10,8x32G@18h=3,16x32G@18h=2"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "benchcapacity:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	hosts := flag.Int("hosts", 2000, "hosts")
	jobs := flag.Int("jobs", 500_000, "jobs, in about that number")
	days := flag.Int("days", 30, "days that are replayed")
	flag.Parse()
	month := time.Duration(*days) * 24 * time.Hour
	o := capacity.Options{Until: month, Hosts: farmOf(*hosts), Loss: capacity.Loss{{CPUs: 8, Share: 0.025},
		{CPUs: 16, Share: 0.084}, {CPUs: 32, Share: 0.129}}}
	m, err := capacity.ParseMix(mix)
	if err != nil {
		return err
	}
	// As many jobs as are wanted, whatever they ask for: load follows from that.
	one, err := m.Jobs(1, o.CPUs(), month, 1)
	if err != nil {
		return err
	}
	if o.Jobs, err = m.Jobs(float64(*jobs)/float64(len(one)), o.CPUs(), month, 1); err != nil {
		return err
	}
	o.Outages = append(capacity.Breaks(0.02, *hosts, 24*time.Hour, month, false, 1),
		capacity.Breaks(0.01, *hosts, 24*time.Hour, month, true, 1)...)
	last := time.Now()
	o.Tell = func(share float64) {
		if time.Since(last) > 3*time.Second {
			last = time.Now()
			fmt.Printf("%.0f %%\n", 100*share)
		}
	}
	fmt.Printf("%d jobs on %d hosts, %.2f of their CPU time\n", len(o.Jobs), *hosts, float64(*jobs)/float64(len(one)))
	began := time.Now()
	r, err := capacity.Replay(ctx, o)
	if err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	return lastline.Print(figures{Jobs: len(o.Jobs), Hosts: *hosts, Seconds: took,
		JobsPerS: float64(len(o.Jobs)) / took, Installed: r.Installed, Delivered: r.Delivered, Lost: r.Lost(),
		Unbalanced: 100 * (r.Installed - r.Delivered - r.Lost()) / r.Installed, Ended: r.Ended, Waiting: r.Waiting}, 0)
}

// farmOf is three kinds of hosts, as a site has that buys every other year.
func farmOf(hosts int) []capacity.Hosts {
	kinds := []topology.Grid{
		{Sockets: 2, CoresPerNode: 8, Threads: 2, NodeMemory: 32 * farm.GiB},
		{Sockets: 2, CoresPerNode: 8, Threads: 2, NodeMemory: 64 * farm.GiB},
		{Sockets: 2, CoresPerNode: 12, Threads: 2, NodeMemory: 64 * farm.GiB},
	}
	var all []capacity.Hosts
	for i, g := range kinds {
		count := hosts/len(kinds) + min(max(hosts%len(kinds)-i, 0), 1)
		if count > 0 {
			all = append(all, capacity.Hosts{Kind: fmt.Sprintf("kind-%d", i), Count: count, Topology: g.Topology(),
				Reserve: farm.HostReserve{Memory: 4 * farm.GiB}})
		}
	}
	return all
}
