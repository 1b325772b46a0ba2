// Command benchbatch measures what grange costs a Slurm: jobs on the host with the plug-in against jobs without it, in
// pairs; the wrapper's own share of a VM job; and the time from sbatch to a job's first line against a raw boot of the
// same guest. It needs root and an idle machine. The last line is JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/batch/conform"
	"github.com/grange-project/grange/e2e/batch/slurmlab"
	"github.com/grange-project/grange/e2e/lastline"
	"github.com/grange-project/grange/internal/rawqemu"
)

// figures is the line at the end. Ratios are medians over pairs.
type figures struct {
	// jobs per second on the host, with grange by the same slurm.conf without it
	MetalRateRatio float64   `json:"metal_rate_ratio"`
	RatioQuartiles []float64 `json:"metal_rate_ratio_quartiles"`
	NoPrologRatio  float64   `json:"metal_rate_ratio_no_prolog"` // with grange by a Slurm that has no prolog at all
	MetalRate      float64   `json:"metal_per_s"`
	MetalRateBare  float64   `json:"metal_bare_per_s"`
	NoPrologRate   float64   `json:"metal_no_prolog_per_s"`
	WrapperMS      float64   `json:"wrapper_ms"`    // of a VM job, all that is neither QEMU's nor the guest's
	CleanMS        float64   `json:"clean_ms"`      // of it besides: until QEMU has ended and given its memory back
	FirstLineMS    float64   `json:"first_line_ms"` // from sbatch to the job's first line
	BareLineMS     float64   `json:"first_line_metal_ms"`
	RawBootMS      float64   `json:"raw_boot_ms"`
	FirstLineRatio float64   `json:"first_line_ratio"` // by a raw boot
	Jobs           int       `json:"jobs"`             // of one batch
	Pairs          int       `json:"pairs"`
}

func main() {
	jobs := flag.Int("jobs", 150, "how many jobs in a batch on the host")
	pairs := flag.Int("pairs", 6, "how many pairs of batches")
	vms := flag.Int("vms", 10, "how many VM jobs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	f := &figures{Jobs: *jobs, Pairs: *pairs}
	if err := f.run(ctx, *vms); err != nil {
		fmt.Fprintln(os.Stderr, "bench-batch:", err)
		os.Exit(1)
	}
	lastline.Print(f, 0)
}

// A site has a prolog and an epilog of its own, and so has each side: Slurm 22.05 without an epilog starts the next job
// only when its scheduler looks again, several times slower, and nothing else would show. After each prolog, whatever
// that does, it sleeps 10 ms, so the site's ends with grange's instead of standing beside it.
const (
	epilog   = "Epilog=/bin/true"
	sitesOwn = "#!/bin/sh\n:\n"
)

func siteProlog() (string, error) {
	file, err := os.CreateTemp("", "site-prolog-")
	if err != nil {
		return "", err
	}
	_, err = file.WriteString(sitesOwn)
	return file.Name(), errors.Join(err, file.Chmod(0o755), file.Close())
}

func (f *figures) run(ctx context.Context, vms int) (err error) {
	fmt.Println("starting three Slurms: with grange, without, and without any prolog")
	sites, err := siteProlog()
	if err != nil {
		return err
	}
	defer os.Remove(sites)
	bare, err := slurmlab.Start(ctx, slurmlab.Options{NoPlugin: true, Extra: epilog + "\nProlog=" + sites})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.Close()) }()
	none, err := slurmlab.Start(ctx, slurmlab.Options{NoPlugin: true, Extra: epilog})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, none.Close()) }()
	with, err := slurmlab.Start(ctx, slurmlab.Options{Extra: epilog, Prolog: sitesOwn})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, with.Close()) }()
	if err := f.metal(ctx, with, bare, none); err != nil {
		return err
	}
	if err := f.wrapper(ctx, with, vms); err != nil {
		return err
	}
	return f.firstLine(ctx, with, vms)
}

// atRest is how long a Slurm takes after its last job until it is as quick as before.
const atRest = 2500 * time.Millisecond

// metal takes turns, in a new order each round: the second of two is often slower on a small machine.
func (f *figures) metal(ctx context.Context, with, bare, none *slurmlab.Lab) error {
	rates := map[*slurmlab.Lab][]float64{}
	var ratios, noProlog []float64
	orders := [][]*slurmlab.Lab{{with, bare, none}, {bare, with, none}, {none, with, bare}, {none, bare, with},
		{with, none, bare}, {bare, none, with}}
	for i := range f.Pairs + 1 {
		rate := map[*slurmlab.Lab]float64{}
		for _, side := range orders[i%len(orders)] {
			time.Sleep(atRest)
			var err error
			if rate[side], err = batch(ctx, side, side == with, f.Jobs); err != nil {
				return err
			}
		}
		if i == 0 {
			continue // caches are cold
		}
		fmt.Printf("round %d: with grange %.1f jobs/s, without %.1f, without any prolog %.1f\n", i, rate[with],
			rate[bare], rate[none])
		ratios, noProlog = append(ratios, rate[with]/rate[bare]), append(noProlog, rate[with]/rate[none])
		for side, r := range rate {
			rates[side] = append(rates[side], r)
		}
	}
	f.MetalRateRatio, f.NoPrologRatio = quantile(ratios, 0.5), quantile(noProlog, 0.5)
	f.RatioQuartiles = []float64{quantile(ratios, 0.25), quantile(ratios, 0.75)}
	f.MetalRate, f.MetalRateBare, f.NoPrologRate = quantile(rates[with], 0.5), quantile(rates[bare],
		0.5), quantile(rates[none], 0.5)
	return nil
}

// batch submits jobs that do nothing, and returns how many ended in a second, by slurmctld's own clock: whoever asks
// Slurm meanwhile slows it down. They are held until all are in the queue: what is measured is Slurm's starting and
// ending of jobs, not how fast a shell calls sbatch.
func batch(ctx context.Context, l *slurmlab.Lab, plugin bool, n int) (float64, error) {
	args := []string{"--hold", "--parsable", fmt.Sprintf("--array=1-%d", n), "--output=/dev/null", "--wrap", "true"}
	if plugin {
		args = append([]string{"--no-vm"}, args...)
	}
	before, err := l.Ended()
	if err != nil {
		return 0, err
	}
	out, err := l.Slurm(ctx, slurmlab.User, "sbatch", args...)
	if err != nil {
		return 0, err
	}
	if _, err := l.Slurm(ctx, "root", "scontrol", "release", strings.TrimSpace(out)); err != nil {
		return 0, err
	}
	for {
		ends, err := l.Ended()
		if err != nil {
			return 0, err
		}
		if ends = ends[len(before):]; len(ends) >= n {
			return float64(n-1) / ends[n-1].Sub(ends[0]).Seconds(), nil
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return 0, fmt.Errorf("%d of %d jobs ended: %w", len(ends), n, ctx.Err())
		}
	}
}

// share is one run of the wrapper inside a job: what the clock says, and what of that was QEMU's and the guest's.
const share = `#!/bin/bash
for i in $(seq %d); do
	began=${EPOCHREALTIME/./} # microseconds, without a process
	%s --socket %s exec --batch slurm --json -- true 2>%s/events-$i || exit 1
	ended=${EPOCHREALTIME/./}
	echo $((ended - began)) >%s/took-$i
done
`

// wrapper measures the wrapper in its place, in a job's control groups: called by a script on the host, many times in
// one job.
func (f *figures) wrapper(ctx context.Context, l *slurmlab.Lab, n int) error {
	id, err := l.Submit(ctx, conform.Job{Metal: true,
		Script: fmt.Sprintf(share, n+1, l.Lab().Binary, l.Lab().Socket, l.Home(), l.Home())})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(n+1)*30*time.Second)
	defer cancel()
	if result, err := l.Wait(ctx, id); err != nil || result.State != conform.Done {
		return fmt.Errorf("the wrapper's job: %+v, %w", result, err)
	}
	var own, clean []float64
	for i := 2; i <= n+1; i++ { // the first finds cold caches
		text, err := os.ReadFile(fmt.Sprintf("%s/took-%d", l.Home(), i))
		if err != nil {
			return err
		}
		var took float64
		if _, err := fmt.Sscan(string(text), &took); err != nil {
			return err
		}
		machine, end, err := machineTime(fmt.Sprintf("%s/events-%d", l.Home(), i))
		if err != nil {
			return err
		}
		if machine == 0 {
			continue
		}
		mine := took/1000 - machine - end
		fmt.Printf("wrapper: %.1f ms of %.0f, and %.1f until QEMU was gone\n", mine, took/1000, end)
		own, clean = append(own, mine), append(clean, end)
	}
	if len(own) < (n+1)/2 {
		return fmt.Errorf("of %d runs of the wrapper %d told all phases", n, len(own))
	}
	f.WrapperMS, f.CleanMS = quantile(own, 0.5), quantile(clean, 0.5)
	return nil
}

// machineTime is what QEMU and the guest took of a job, in milliseconds: to make the machine, boot it, prepare and run
// the command; and to end it. 0: not all of it was told.
func machineTime(path string) (machine, end float64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	seen := 0
	for decoder := json.NewDecoder(file); ; {
		var e struct {
			Phase  *api.Phase
			Phases []api.Phase // of the result
		}
		if decoder.Decode(&e) != nil {
			break
		}
		if e.Phase != nil {
			e.Phases = append(e.Phases, *e.Phase)
		}
		for _, p := range e.Phases {
			switch p.Name {
			case "define", "boot", "guest", "job":
				machine, seen = machine+p.Milliseconds, seen+1
			case "clean":
				end, seen = end+p.Milliseconds, seen+1
			}
		}
	}
	if seen != 5 { // the command's exit status may be here before the agent tells how long it took
		return 0, 0, nil
	}
	return machine, end, nil
}

// firstLine takes turns between a VM job, a job on the host, and a raw boot.
func (f *figures) firstLine(ctx context.Context, l *slurmlab.Lab, n int) error {
	guest, err := l.Lab().RawGuest()
	if err != nil {
		return err
	}
	var inVM, onMetal, raw []float64
	for i := range n + 1 {
		vm, err := line(ctx, l, false)
		if err != nil {
			return err
		}
		boot, err := rawqemu.Boot(ctx, guest, "0-1")
		if err != nil {
			return err
		}
		metal, err := line(ctx, l, true)
		if err != nil {
			return err
		}
		if i > 0 {
			inVM, onMetal, raw = append(inVM, ms(vm)), append(onMetal, ms(metal)), append(raw, ms(boot))
			fmt.Printf("first line: in a VM %.0f ms, on the host %.0f; raw boot %.0f\n", ms(vm), ms(metal), ms(boot))
		}
	}
	f.FirstLineMS, f.BareLineMS, f.RawBootMS = quantile(inVM, 0.5), quantile(onMetal, 0.5), quantile(raw, 0.5)
	f.FirstLineRatio = f.FirstLineMS / f.RawBootMS
	return nil
}

// line is the time from sbatch to the job's first line in a file of the host. An idle Slurm looks at its queue once a
// second, and is asked at any time of that second.
func line(ctx context.Context, l *slurmlab.Lab, metal bool) (time.Duration, error) {
	time.Sleep(rand.N(time.Second))
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	began := time.Now()
	id, err := l.Submit(ctx, conform.Job{Metal: metal, Script: "#!/bin/sh\necho first\n"})
	if err != nil {
		return 0, err
	}
	for {
		if out, _ := l.Output(id); out != "" {
			break
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return 0, fmt.Errorf("job %s wrote nothing: %w", id, ctx.Err())
		}
	}
	took := time.Since(began)
	_, err = l.Wait(ctx, id)
	return took, err
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	return v[int(q*float64(len(v)-1)+0.5)]
}
