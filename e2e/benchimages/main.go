// Command benchimages measures how images reach hosts: simulated hosts, which fetch and give as agents do, and real
// agents fetch one image from a real server at once, while some of them and the server are killed; the bytes of the
// next versions of an image; the same by plain HTTP; 400 hosts in simulation; and starts from container images. Its
// last line is JSON.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/benchoci/ocistart"
	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/e2e/lastline"
	"github.com/grange-project/grange/internal/transfer/swarm/swarmtest"
)

type options struct {
	images    string // directory of the versions of an image
	hosts     int
	agents    int
	rate      int64 // bytes a second of each host, each way, and of the server
	simulated int
	rounds    int // of starts
	only      string
	programs  string // directory with grange and grange-guest

	child child // what a process of simulated hosts is started with
}

// result is the last line.
type result struct {
	Hosts            int     `json:"hosts"`
	Agents           int     `json:"agents"`
	Bytes            int64   `json:"bytes"`      // of the image
	DataBytes        int64   `json:"data_bytes"` // of it, without zeros and repetitions
	Rate             int64   `json:"rate"`       // bytes a second
	Seconds          float64 `json:"seconds"`
	SourceCopies     float64 `json:"source_copies"`
	Killed           int     `json:"killed"` // hosts, and the server
	HTTPSeconds      float64 `json:"http_seconds"`
	HTTPPart         float64 `json:"http_part"` // of the image that was sent for that
	SpeedupVsHTTP    float64 `json:"speedup_vs_http"`
	DeltaVsFixed     float64 `json:"delta_vs_fixed"` // the worst of Deltas
	Deltas           []delta `json:"deltas"`
	MakespanRatio400 float64 `json:"makespan_ratio_400"`
	SimSourceCopies  float64 `json:"simulated_source_copies"`
	// Cached starts of one container image as three kinds of source, beside the micro image's.
	OCIStartRatio float64 `json:"oci_start_ratio"`
	SIFStartRatio float64 `json:"sif_start_ratio"`
	DirStartRatio float64 `json:"dir_start_ratio"`
}

func main() {
	var o options
	flag.StringVar(&o.images, "images", "", "`DIR` with first, upgraded and rebuilt .raw and .qcow2; made if it has none")
	flag.IntVar(&o.hosts, "hosts", 20, "simulated hosts")
	flag.IntVar(&o.agents, "agents", 2, "real agents")
	flag.Int64Var(&o.rate, "rate", 25_000_000, "bytes a second of each host, each way, and of the server")
	flag.StringVar(&o.only, "only", "", "`PARTS` of it alone, with commas: simulation, starts, deltas, fleet, http")
	flag.IntVar(&o.rounds, "rounds", 12, "rounds of starts, each of every kind of image")
	flag.StringVar(&o.programs, "programs", "", "`DIR` with grange and grange-guest; built if there is none")
	flag.IntVar(&o.simulated, "simulated", 400, "hosts in virtual time")
	o.child.flags()
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if o.child.dir != "" {
		exit(o.child.run(ctx))
	}
	r, err := o.run(ctx)
	if err == nil {
		err = lastline.Print(r, 0)
	}
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchimages:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (o options) run(ctx context.Context) (r result, err error) {
	if os.Getuid() != 0 {
		return r, errors.New("it needs root: it mounts a disk, and runs agents")
	}
	work, err := os.MkdirTemp("/var/tmp", "bench-images-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(work)
	if o.images == "" {
		o.images = filepath.Join(work, "versions")
	}
	if err := o.versions(ctx); err != nil {
		return r, err
	}
	r.Hosts, r.Agents, r.Rate = o.hosts, o.agents, o.rate
	for _, part := range []struct {
		name string
		do   func() error
	}{{"simulation", func() error { o.simulate(&r); return nil }},
		{"starts", func() error { return o.starts(ctx, &r) }},
		{"deltas", func() error { return o.deltas(ctx, &r) }},
		{"fleet", func() error { return o.fleet(ctx, work, &r) }}, {"http", func() error { return o.http(ctx, &r) }}} {
		if o.only != "" && !strings.Contains(o.only, part.name) {
			continue
		}
		if err := part.do(); err != nil {
			return r, fmt.Errorf("%s: %w", part.name, err)
		}
	}
	if r.Seconds > 0 {
		r.SpeedupVsHTTP = r.HTTPSeconds / r.Seconds
	}
	return r, nil
}

// versions makes the versions of an image that are not there.
func (o options) versions(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(o.images, "rebuilt.qcow2")); err == nil {
		return nil
	}
	fmt.Println("making two versions of an image, in three ways: some minutes")
	cmd := exec.CommandContext(ctx, filepath.Join(lab.Source(), "e2e/benchimages/versions.sh"), o.images)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("versions.sh: %w\n%s", err, out)
	}
	return nil
}

// simulate has many hosts begin at once with an image of 2 GiB, all on links of 1 Gb/s.
func (o options) simulate(r *result) {
	got := swarmtest.Run{Hosts: o.simulated, Pieces: 512, PieceBytes: 4 << 20, Link: 125e6, SourceLink: 125e6,
		Known: 40}.Do()
	if got.Finished == o.simulated {
		r.MakespanRatio400, r.SimSourceCopies = got.Ratio, got.SourceCopies
	}
	fmt.Printf("%d hosts in virtual time: %.2f times one copy, the source sent %.2f\n", o.simulated, r.MakespanRatio400,
		r.SimSourceCopies)
}

// starts compares the start of a job from a container image with that from the micro image, both cached.
func (o options) starts(ctx context.Context, r *result) error {
	l, err := lab.Start(ctx, lab.Options{})
	if err != nil {
		return err
	}
	defer l.Close()
	f, err := ocistart.Measure(ctx, l, o.rounds)
	r.OCIStartRatio, r.SIFStartRatio, r.DirStartRatio = f.OCIRatio, f.SIFRatio, f.DirRatio
	return err
}

// seconds rounds for people.
func seconds(d time.Duration) float64 { return float64(d.Round(100*time.Millisecond)) / 1e9 }
