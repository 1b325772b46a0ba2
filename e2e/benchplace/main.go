// Command benchplace measures how fast a server gives VMs their hosts, on one core. Fleets of 100, 1,000 and 10,000 hosts of five kinds begin
// half full, and as many VMs go as come. The last line is JSON.
//
// What is counted is a whole server in a process of its own with GOMAXPROCS=1 on a real database: its reading of the change feed and of the
// rows that changed, the claim of threads, memory and pages by NUMA node, the commit of places in groups (SQLite, synchronous=FULL), the
// release of what goes, and all its other loops and collections of garbage. What is not counted is what people and hosts would do: this
// process writes their requests and the ends of VMs to the same file, on another core, and tells the server of each commit through a pipe, as a
// write within the server would. SQLite has one writer at a time: while this process writes, the server's commits wait, and that is in
// all times of the clock. The log of the file is written back by either process.
//
// The rate is that of a closed loop: up to -window VMs wait at any time, and -refill are asked for in one transaction, with as many ends, when so
// many are placed. It is given by the clock, and for each second of CPU time of the server's process with all its threads; cores busy is
// the ratio of both. The latencies are those of an open loop: requests come at random times (exponential gaps) at -share of that rate, and
// most ask for one VM, a quarter for 2 to 5, one in twenty for 6 to 15. Those that come within a -tick are one transaction with as
// many ends, as a server writes together what its callers ask at the same time. A VM's time runs from the end of that transaction until it is
// seen with its host in the change feed, behind the durable commit; the feed is read every quarter of a millisecond.
//
// The peers are plain scans: numa.Plan on one host after the other, from the same half-full fleet, with nothing committed. First fit takes the
// first host that has room; best fit looks at all and takes the one where the plan costs least, as the placer does.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	rtrace "runtime/trace"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// counted says in the output what the figures are of.
const counted = "a server process with GOMAXPROCS=1: feed, NUMA claims, durable grouped commits, releases, all its loops; requests and ends are written by another process"

// settings are the flags.
type settings struct {
	hosts   string
	dir     string
	window  int
	refill  int
	share   float64
	seconds float64
	tick    time.Duration
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
	flag.DurationVar(&s.tick, "tick", 5*time.Millisecond, "requests that come within it are written in one transaction of the open loop")
	flag.StringVar(&s.serve, "serve", "", "be the measured server of this database; for this program's own use")
	flag.Float64Var(&s.share, "share", 0.6, "of the measured rate that the open loop offers")
	flag.Float64Var(&s.seconds, "seconds", 5, "of each loop")
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
	out := map[string]any{"gomaxprocs": 1, "window": s.window, "refill": s.refill, "tick_ms": milliseconds(s.tick), "counted": counted, "open_loop_share": s.share, "seconds": s.seconds}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "HOSTS\tPLACEMENTS/S\tPER CPU SECOND\tCORES BUSY\tP50\tP99\tOFFERED/S\tVMS A COMMIT\tREFUSED\tFDATASYNC P50, P99\tFIRST FIT/S\tBEST FIT/S\tRATIO\tRSS")
	fmt.Println("Counted:", counted+".")
	fmt.Printf("The rate with up to %d VMs that wait; latencies at %.0f %% of it, requests of 1 to 15 VMs at random times, from the request's commit to the place's.\n",
		s.window, 100*s.share)
	fmt.Println("First fit and best fit are scans of all hosts that commit nothing; the ratio is to best fit, which chooses as the placer does.")
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
		fmt.Fprintf(table, "%d\t%.0f\t%.0f\t%.2f\t%.2f ms\t%.2f ms\t%.0f\t%.1f\t%d\t%.2f, %.2f ms\t%.0f\t%.0f\t%.1f\t%.0f MB\n", hosts, f.Rate, f.PerCPU, f.Busy, f.P50, f.P99, f.Offered,
			f.PerCommit, f.Refused, f.sync50, f.sync99, f.first, f.best, f.Rate/f.best, f.RSS)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	text, err := json.Marshal(out)
	fmt.Println(string(text))
	return err
}

// figures are of one fleet.
type figures struct {
	loopFigures
	sync50, sync99 float64 // ms that fdatasync of 4 KiB takes here
	first, best    float64 // placements a second of the peers
}

// loopFigures are what the server's process says of itself.
type loopFigures struct {
	Rate, PerCPU      float64 // placements a second of the clock, and of CPU time of the process, in the closed loop
	Busy              float64 // of one core, in the closed loop: that CPU time
	P50, P99, Offered float64 // ms, and placements a second, in the open loop
	PerCommit         float64 // VMs in a commit of the placer, in the closed loop
	Commits           int     // of the placer, in both loops
	Placed, Refused   int     // VMs, in both loops
	RSS               float64 // MB
}

func (f figures) add(out map[string]any, hosts string) {
	for key, value := range map[string]any{"placements_per_s": round(f.Rate), "placements_per_cpu_s": round(f.PerCPU), "cores_busy": round(f.Busy), "p50_ms": round(f.P50), "p99_ms": round(f.P99),
		"offered_per_s": round(f.Offered), "vms_per_commit": round(f.PerCommit), "commits": f.Commits, "placed": f.Placed, "refused": f.Refused,
		"fdatasync_p50_ms": round(f.sync50), "fdatasync_p99_ms": round(f.sync99), "first_fit_per_s": round(f.first), "best_fit_per_s": round(f.best), "ratio_to_best_fit": round(f.Rate / f.best)} {
		out[key+"_"+hosts] = value
	}
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
	f.loopFigures, err = loopsApart(ctx, s)
	return f, err
}

// loops measures.
func (b *bench) loops(ctx context.Context, s settings) (f loopFigures, err error) {
	if err := b.begun(ctx); err != nil {
		return f, err
	}
	tf, _ := os.Create("/tmp/bp/trace.out")
	if os.Getenv("TRACE") != "" {
		rtrace.Start(tf)
	}
	if s.profile != "" {
		runtime.GC()
		f, _ := os.Create(s.profile + ".allocs0")
		pprof.Lookup("allocs").WriteTo(f, 0)
		f.Close()
		file, err := os.Create(s.profile)
		if err != nil {
			return loopFigures{}, err
		}
		pprof.StartCPUProfile(file)
	}
	if err := b.closed(ctx, s, &f); err != nil {
		return f, err
	}
	rtrace.Stop()
	f.Offered = f.Rate * s.share
	if err := b.open(ctx, s, &f); err != nil {
		return f, err
	}
	f.RSS, err = residentMB()
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
	return l.until(0)
}
