// Command benchplace measures how fast a server gives VMs their hosts, on one core: requests written to the store, each placed by the server's
// own placer with threads, memory and pages, committed to SQLite with synchronous=FULL, and as many VMs going as come. Fleets of 100, 1,000 and
// 10,000 hosts of five kinds begin half full. The last line is JSON.
//
// The rate is that of a closed loop: -window VMs wait at any time, and a new request comes when some are placed. The latencies are those of an
// open loop: requests come at random times (exponential gaps), at -share of that rate, and a VM's time runs from the moment at which its request
// was due until it was seen with its host in the change feed, behind the commit; the feed is read once a millisecond at most. A request asks for 1 to 15 VMs and is a transaction of its own;
// so is the report that as many others are gone. All of it, the requests and reports too, runs on the one core that is measured.
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
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// settings are the flags.
type settings struct {
	hosts   string
	dir     string
	window  int
	share   float64
	seconds float64
	profile string
}

func main() {
	var s settings
	flag.StringVar(&s.hosts, "hosts", "100,1000,10000", "sizes of fleets")
	flag.StringVar(&s.dir, "dir", "/var/tmp", "where the database is made: on a disk, or its commits are worth nothing")
	flag.IntVar(&s.window, "window", 256, "VMs that wait at any time in the closed loop")
	flag.Float64Var(&s.share, "share", 0.5, "of the measured rate that the open loop offers")
	flag.Float64Var(&s.seconds, "seconds", 5, "of each loop")
	flag.StringVar(&s.profile, "profile", "", "write a CPU profile of the loops of the last fleet here")
	flag.Parse()
	runtime.GOMAXPROCS(1)
	if err := run(context.Background(), s); err != nil {
		fmt.Fprintln(os.Stderr, "benchplace:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) error {
	out := map[string]any{"gomaxprocs": 1, "window": s.window, "open_loop_share": s.share, "seconds": s.seconds}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "HOSTS\tPLACEMENTS/S\tPER CPU SECOND\tP50\tP99\tOFFERED/S\tVMS A COMMIT\tREFUSED\tFDATASYNC P50, P99\tFIRST FIT/S\tBEST FIT/S\tRATIO\tRSS")
	fmt.Printf("Placements with a durable commit, on one core: at most, with %d VMs that wait; latencies at %.0f %% of that, requests at random times.\n", s.window, 100*s.share)
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
		fmt.Fprintf(table, "%d\t%.0f\t%.0f\t%.2f ms\t%.2f ms\t%.0f\t%.1f\t%d\t%.2f, %.2f ms\t%.0f\t%.0f\t%.1f\t%.0f MB\n", hosts, f.rate, f.perCPU, f.p50, f.p99, f.offered,
			f.perCommit, f.refused, f.sync50, f.sync99, f.first, f.best, f.rate/f.best, f.rss)
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
	rate, perCPU      float64 // placements a second of the clock, and of CPU time, in the closed loop
	p50, p99, offered float64 // ms, and placements a second, in the open loop
	perCommit         float64 // VMs in a commit of the placer, in the closed loop
	commits           int     // of the placer, in both loops
	placed, refused   int     // VMs, in both loops
	sync50, sync99    float64 // ms that fdatasync of 4 KiB takes here
	first, best       float64 // placements a second of the peers
	rss               float64 // MB, of the whole process
}

func (f figures) add(out map[string]any, hosts string) {
	for key, value := range map[string]any{"placements_per_s": round(f.rate), "placements_per_cpu_s": round(f.perCPU), "p50_ms": round(f.p50), "p99_ms": round(f.p99),
		"offered_per_s": round(f.offered), "vms_per_commit": round(f.perCommit), "commits": f.commits, "placed": f.placed, "refused": f.refused,
		"fdatasync_p50_ms": round(f.sync50), "fdatasync_p99_ms": round(f.sync99), "first_fit_per_s": round(f.first), "best_fit_per_s": round(f.best), "ratio_to_best_fit": round(f.rate / f.best)} {
		out[key+"_"+hosts] = value
	}
	out["rss_mb"] = round(f.rss) // of the largest fleet, which comes last
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
	stop, err := b.serve(ctx)
	if err != nil {
		return f, err
	}
	if profile != "" {
		file, err := os.Create(profile)
		if err != nil {
			return f, err
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return f, err
		}
	}
	span := time.Duration(s.seconds * float64(time.Second))
	if err := b.closed(ctx, s.window, span, &f); err != nil {
		return f, err
	}
	f.offered = f.rate * s.share
	if err := b.open(ctx, span, &f); err != nil {
		return f, err
	}
	pprof.StopCPUProfile()
	f.rss, err = residentMB()
	return f, errors(err, stop())
}
