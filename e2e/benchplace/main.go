// Command benchplace measures how fast a server gives VMs their hosts, on one core. Fleets of 100, 1,000 and 10,000
// hosts of five kinds begin half full, and as many VMs go as come. The last line is JSON.
//
// What is counted is a whole server in a process of its own with GOMAXPROCS=1 on a real database (SQLite,
// synchronous=FULL): the claim of threads, memory and pages by NUMA node, the commit of VMs with their places in
// groups, its reading of the change feed, the release of what goes, all its other loops and collections of garbage; and
// in the same process what people and hosts make it write: the rows of VMs that are asked for, and the ends of others.
// What a request is held against before (rights, quotas, names) and HTTP are left out.
//
// The rate is that of a closed loop: up to -window VMs wait at any time, and -refill are asked for in one transaction,
// with as many ends, when so many are placed. It is given by the clock, and for each second of CPU time of the process
// with all its threads; cores busy is the ratio of both.
//
// The latencies are those of open loops: requests come at random times (exponential gaps) at -share of that rate, each
// an Update of its own, and with each of them as many VMs end, in another; that costs more than the large ones of the
// closed loop. Most ask for one VM, a quarter for 2 to 5, one in twenty for 6 to
// 15. Two times are taken of each VM, both until it is seen with its host in the change feed, behind the durable
// commit: p50_ms and p99_ms from when the server takes its request up, which is the claims, the rows and the commit,
// with what others write into that; p50_ms_request and p99_ms_request from when the request comes, its wait for what
// was there before included. placed_later counts VMs whose place was not in their request's own commit. Each figure is
// the median of several rounds, for a disk that others share stands still now and then; p99_ms_worst is of the worst
// round. The first open loops have GOMAXPROCS=1 too. The others have what Go gives a server by itself, a thread for
// each CPU of the machine, at the same rate: garbage is then collected beside the work, and not instead of it; cores
// busy returns what it takes in all.
//
// The peers are plain scans: numa.Plan on one host after the other, from the same half-full fleet, with nothing
// committed. First fit takes the first host that has room; best fit looks at all and takes the one where the plan costs
// least, as the placer does.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/grange-project/grange/e2e/lastline"
)

// counted says in the output what the figures are of.
const counted = "a server process: NUMA claims, durable grouped commits, feed, releases, all its loops; and people's " +
	"requests and VMs' ends, as rows"

// settings are the flags.
type settings struct {
	hosts   string
	dir     string
	window  int
	refill  int
	share   float64
	seconds float64
	profile string
	serve   string
}

// span is how long each loop is.
func (s settings) span() time.Duration { return time.Duration(s.seconds * float64(time.Second)) }

func main() {
	var s settings
	flag.StringVar(&s.hosts, "hosts", "100,1000,10000", "sizes of fleets")
	flag.StringVar(&s.dir, "dir", "/var/tmp", "where the database is made: on a disk, or its commits are worth nothing")
	flag.IntVar(&s.window, "window", 512, "VMs that wait at any time in the closed loop")
	flag.IntVar(&s.refill, "refill", 128, "VMs that are asked for in one transaction of the closed loop")
	flag.StringVar(&s.serve, "serve", "", "be the measured server of this database; for this program's own use")
	flag.Float64Var(&s.share, "share", 0.3, "of the measured rate that the open loops offer")
	flag.Float64Var(&s.seconds, "seconds", 4, "of each loop")
	flag.StringVar(&s.profile, "profile", "", "write a CPU profile of the loops of the last fleet here")
	flag.Parse()
	var err error
	if s.serve != "" {
		err = serve(context.Background(), s, os.Stdout)
	} else {
		err = run(context.Background(), s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchplace:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) error {
	out := map[string]any{"gomaxprocs": 1, "window": s.window, "refill": s.refill, "counted": counted,
		"open_loop_share": s.share, "seconds": s.seconds}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "HOSTS\tPLACEMENTS/S\tPER CPU SECOND\tCORES BUSY\tOFFERED/S\tP50, P99\tFROM THE REQUEST\tALL "+
		"CPUS: P50, P99\tFROM THE REQUEST\tCORES BUSY\tVMS A COMMIT\tREFUSED\tFSYNC P50, P99\tFIRST FIT/S\tBEST "+
		"FIT/S\tRATIO\tRSS")
	fmt.Println("Counted:", counted+".")
	fmt.Printf("The rate with up to %d VMs that wait; latencies at %.0f %% of it, requests of 1 to 15 VMs at random "+
		"times, until their place is durable and seen: from when the server takes them up, and from when they come; "+
		"medians of %d rounds, on one core and on all CPUs.\n", s.window, 100*s.share, rounds)
	fmt.Println("First fit and best fit are scans of all hosts that commit nothing; the ratio is to best fit, which " +
		"chooses as the placer does.")
	sizes := strings.Split(s.hosts, ",")
	for i, text := range sizes {
		hosts, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		profile := ""
		if i == len(sizes)-1 {
			profile = s.profile
		}
		f, err := measure(ctx, s, hosts, profile)
		if err != nil {
			return fmt.Errorf("%d hosts: %w", hosts, err)
		}
		f.add(out, text)
		fmt.Fprintf(table, "%d\t%.0f\t%.0f\t%.2f\t%.0f\t%.2f, %.2f ms\t%.2f, %.2f ms\t%.2f, %.2f ms\t%.2f, %.2f "+
			"ms\t%.2f\t%.1f\t%d\t%.2f, %.2f ms\t%.0f\t%.0f\t%.1f\t%.0f MB\n", hosts, f.Rate, f.PerCPU, f.Busy,
			f.Offered, f.One.P50, f.One.P99, f.One.Request50, f.One.Request99, f.All.P50, f.All.P99, f.All.Request50,
			f.All.Request99, f.All.Busy, f.PerCommit, f.Refused, f.sync50, f.sync99, f.first, f.best,
			f.Rate/f.best, f.RSS)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return lastline.Print(out, 0)
}

// figures are of one fleet.
type figures struct {
	loopFigures
	sync50, sync99 float64 // ms that fsync of 4 KiB takes here
	first, best    float64 // placements a second of the peers
}

// loopFigures are what the server's process says of itself.
type loopFigures struct {
	CPUs            int     // of the machine, as Go counts them
	Rate, PerCPU    float64 // placements a second of the clock, and of CPU time of the process, in the closed loop
	Busy            float64 // cores, in the closed loop: that CPU time
	PerCommit       float64 // VMs in a revision that placed any, in the closed loop
	Offered         float64 // placements a second, in the open loops
	One, All        latency // with GOMAXPROCS=1, and with one for each CPU
	Commits         int     // revisions that placed any, in all loops
	Placed, Refused int     // VMs, in all loops
	Later           int     // VMs that were placed by a commit behind that of their request
	RSS             float64 // MB
}

// latency is of open loops, in ms.
type latency struct {
	P50, P99             float64 // from when the server takes a request up
	Worst                float64 // P99 of the worst round
	Request50, Request99 float64 // from when it comes
	Busy                 float64 // cores
}

func (f figures) add(out map[string]any, hosts string) {
	for key, value := range map[string]any{"placements_per_s": round(f.Rate), "placements_per_cpu_s": round(f.PerCPU),
		"cores_busy": round(f.Busy), "p50_ms": round(f.One.P50), "p99_ms": round(f.One.P99),
		"cores_busy_open": round(f.One.Busy), "p50_ms_request": round(f.One.Request50),
		"p99_ms_request": round(f.One.Request99), "p50_ms_request_all_cpus": round(f.All.Request50),
		"p99_ms_request_all_cpus": round(f.All.Request99), "p99_ms_worst": round(f.One.Worst),
		"p99_ms_worst_all_cpus": round(f.All.Worst), "p50_ms_all_cpus": round(f.All.P50),
		"p99_ms_all_cpus": round(f.All.P99), "cores_busy_all_cpus": round(f.All.Busy),
		"offered_per_s": round(f.Offered), "vms_per_commit": round(f.PerCommit), "commits": f.Commits,
		"placed": f.Placed, "placed_later": f.Later, "refused": f.Refused, "fsync_p50_ms": round(f.sync50),
		"fsync_p99_ms": round(f.sync99), "first_fit_per_s": round(f.first), "best_fit_per_s": round(f.best),
		"ratio_to_best_fit": round(f.Rate / f.best)} {
		out[key+"_"+hosts] = value
	}
	out["cpus"] = f.CPUs
	out["rss_mb"] = round(f.RSS) // of the largest fleet, which comes last
}

// round is to hundredths.
func round(v float64) float64 { return float64(int64(v*100+0.5)) / 100 }

func measure(ctx context.Context, s settings, hosts int, profile string) (f figures, err error) {
	dir, err := os.MkdirTemp(s.dir, "benchplace")
	if err != nil {
		return f, err
	}
	defer os.RemoveAll(dir)
	if f.sync50, f.sync99, err = syncTimes(dir); err != nil {
		return f, err
	}
	b, err := begin(ctx, dir, hosts)
	if err != nil {
		return f, err
	}
	if f.first, err = b.scan(time.Second, false); err != nil {
		return f, err
	}
	if f.best, err = b.scan(time.Second, true); err != nil {
		return f, err
	}
	if err := b.store.Close(); err != nil {
		return f, err
	}
	s.serve, s.profile = b.path, profile
	f.loopFigures, err = apart(ctx, s)
	return f, err
}

// loops measures, in the server's process.
func (b *bench) loops(ctx context.Context, s settings) (f loopFigures, err error) {
	f.CPUs = runtime.GOMAXPROCS(1)
	if err := b.begun(ctx); err != nil {
		return f, err
	}
	err = profiled(s.profile, func() error {
		if err := b.closed(ctx, s, &f); err != nil {
			return err
		}
		f.Offered = f.Rate * s.share
		if f.One, err = b.open(ctx, s, &f); err != nil {
			return err
		}
		runtime.GOMAXPROCS(f.CPUs)
		if f.All, err = b.open(ctx, s, &f); err != nil {
			return err
		}
		f.RSS, err = residentMB()
		return err
	})
	return f, err
}

// begun waits until the server places VMs.
func (b *bench) begun(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := b.watch(ctx)
	if err != nil {
		return err
	}
	if err := l.turn(ctx, 1); err != nil {
		return err
	}
	return l.settle(ctx, &loopFigures{})
}
