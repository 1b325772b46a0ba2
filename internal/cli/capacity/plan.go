package capacity

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/capacity"
	"github.com/grange-project/grange/internal/capacity/demand"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
)

// planFlags are what `grange capacity plan` takes: a farm, its jobs, and what would be changed.
type planFlags struct {
	hosts                  []string
	reserve, reserveMemory string
	jobs, mix, loss        string
	load, drained, broken  float64
	days                   float64
	seed                   uint64
	nodeLimit              int

	vmCPUs        int
	noSMT         bool
	pages, memory string
	threads, numa string
	add           []string
}

// changes are the flags of what would be changed.
var changes = []string{"vm-cpus", "no-smt", "page-size", "memory-per-cpu", "thread-policy", "numa", "add"}

func (a commands) planCommand() *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{Use: "plan", Short: "Replay a month of jobs on a farm, as it is and as it might be",
		Long: `Replay the jobs of a recorded time on a farm, by the placement that real VMs get, and tell how much of
its CPU time jobs got, and where the rest went. Nothing is started or changed, and no server is asked.

--host names hosts that are alike: their number, and what they are: a file that "grange host record" wrote,
or 2s16c2t256G for two sockets of 16 cores with two threads each, and 256 GiB.

The jobs are those of --jobs: what "sacct --allusers --parsable2 --format=JobID,Submit,ElapsedRaw,AllocCPUS,
ReqMem,State" prints, or "grange usage export --format csv"; - is standard input. Without a record, --mix
says what jobs there are, and --load how much of the farm they would fill.

Each job has a VM of its own of its size, or, with --vm-cpus, VMs of one size fill the hosts, stay, and take
jobs. What VMs of a size lose against the host is --loss, as "grange bench run" measures it; nothing is lost
without. With any of --vm-cpus, --no-smt, --page-size, --memory-per-cpu, --thread-policy, --numa and --add,
both farms are replayed: as it is, and so changed.

Times of jobs stay as they are recorded: what a thread gains when its sibling is off, or a VM by its pages,
is not in them. Jobs start in their order, and one that does not fit does not hold up those behind it.`,
		Example: `  grange capacity plan --host 200x2s16c2t256G --jobs october.txt --vm-cpus 8 --loss 8=2.5,16=8.4,32=12.9
  grange capacity plan --host 120xepyc.tar.gz --host 80xxeon.tar.gz --mix 8x16G@6h=70,1x2G@3h=30 --load 0.95
  sacct --allusers --parsable2 --format=JobID,Submit,ElapsedRaw,AllocCPUS,ReqMem,State --starttime 2026-10-01 |
    grange capacity plan --host 200x2s16c2t256G --jobs - --add 20x2s96c2t1536G`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			changed := false
			for _, name := range changes {
				changed = changed || cmd.Flags().Changed(name)
			}
			return a.plan(cmd.Context(), f, changed)
		}}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.hosts, "host", nil, "equal hosts: `COUNTxHOST` (repeatable)")
	flags.StringVar(&f.reserve, "reserve", "", "`CPUs` of each host that no VM gets")
	flags.StringVar(&f.reserveMemory, "reserve-memory", "4G", "`SIZE` of memory of each host that no VM gets")
	flags.StringVar(&f.jobs, "jobs", "", "`FILE` with the recorded jobs")
	flags.StringVar(&f.mix, "mix", "", "kinds of jobs in place of a record: `CPUSxMEMORY@DURATION=SHARE,...`")
	flags.Float64Var(&f.load, "load", 1, "how much of all CPU time the jobs of --mix ask for")
	flags.Float64Var(&f.days, "days", 0, "days that are replayed (default: those of the record; of --mix 30)")
	flags.Uint64Var(&f.seed, "seed", 1, "of what is drawn at random: the same seed gives the same result")
	flags.StringVar(&f.loss, "loss", "", "what VMs lose by their size, in per cent: `CPUS=PERCENT,...`")
	flags.Float64Var(&f.drained, "drained", 0, "share of hosts that are drained at any time, for a day each")
	flags.Float64Var(&f.broken, "broken", 0, "share of hosts that are broken at any time, for a day each")
	flags.IntVar(&f.nodeLimit, "node-limit", 5000, "nodes that one instance of the batch system bears")
	flags.IntVar(&f.vmCPUs, "vm-cpus", 0, "what if: VMs of so many CPUs stay, and take jobs")
	flags.BoolVar(&f.noSMT, "no-smt", false, "what if: SMT is off")
	flags.StringVar(&f.pages, "page-size", "", "what if: memory of VMs is in huge pages of this `SIZE`; none: in ordinary ones")
	flags.StringVar(&f.memory, "memory-per-cpu", "", "what if: jobs ask for this `SIZE` of memory for each CPU")
	flags.StringVar(&f.threads, "thread-policy", "prefer", "what if: use of SMT siblings: prefer, require or isolate")
	flags.StringVar(&f.numa, "numa", "auto", "what if: guest NUMA nodes of each VM: auto, none or a number")
	flags.StringArrayVar(&f.add, "add", nil, "what if: more hosts: `COUNTxHOST` (repeatable)")
	cmd.RegisterFlagCompletionFunc("thread-policy", cobra.FixedCompletions([]string{"prefer", "require", "isolate"},
		cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a commands) plan(ctx context.Context, f planFlags, changed bool) error {
	now, err := f.options(ctx)
	if err != nil {
		return err
	}
	var then capacity.Options
	if changed {
		if then, err = f.changed(ctx, now); err != nil {
			return err
		}
	}
	out := plan{Days: now.Until.Hours() / 24, Jobs: len(now.Jobs), NodeLimit: f.nodeLimit, Loss: f.loss != ""}
	if out.Now, err = a.replay(ctx, "the farm as it is", now); err != nil {
		return err
	}
	if changed {
		r, err := a.replay(ctx, "the farm so changed", then)
		if err != nil {
			return err
		}
		out.Then = &r
	}
	if a.JSON {
		return a.PrintJSON(out)
	}
	return out.print(a.App)
}

// patience is after how long a replay says how far it is.
const patience = 3 * time.Second

func (a commands) replay(ctx context.Context, what string, o capacity.Options) (capacity.Report, error) {
	last := time.Now()
	o.Tell = func(share float64) {
		if time.Since(last) >= patience {
			last = time.Now()
			fmt.Fprintf(a.Err, "replaying %s: %.0f %%\n", what, 100*share)
		}
	}
	return capacity.Replay(ctx, o)
}

// options are the farm as it is.
func (f planFlags) options(ctx context.Context) (o capacity.Options, err error) {
	if len(f.hosts) == 0 || (f.jobs == "") == (f.mix == "") {
		return o, app.Usage("for example: grange capacity plan --host 200x2s16c2t256G --mix 8x16G@6h --load 0.9",
			"name the hosts with --host, and their jobs with --jobs or with --mix")
	}
	// written so that NaN is refused, too
	if !(f.drained >= 0 && f.broken >= 0 && f.drained+f.broken <= 0.9) || f.nodeLimit < 1 ||
		!(f.days >= 0 && f.days <= 3660) {
		return o, app.Usage("see `grange capacity plan --help`", "--drained, --broken, --days or --node-limit makes no sense")
	}
	if o.Hosts, err = f.farm(ctx, f.hosts); err != nil {
		return o, err
	}
	if f.loss != "" {
		if o.Loss, err = capacity.ParseLoss(f.loss); err != nil {
			return o, err
		}
	}
	if err = f.demand(&o); err != nil {
		return o, err
	}
	count := 0
	for _, h := range o.Hosts {
		count += h.Count
	}
	const each = 24 * time.Hour
	o.Outages = append(capacity.Breaks(f.drained, count, each, o.Until, false, f.seed),
		capacity.Breaks(f.broken, count, each, o.Until, true, f.seed)...)
	return o, nil
}

const day = 24 * time.Hour

// demand reads the jobs, or draws them.
func (f planFlags) demand(o *capacity.Options) error {
	o.Until = time.Duration(f.days * float64(day))
	if f.mix != "" {
		if f.days == 0 {
			o.Until = 30 * day
		}
		m, err := capacity.ParseMix(f.mix)
		if err == nil {
			o.Jobs, err = m.Jobs(f.load, o.CPUs(), o.Until, f.seed)
		}
		return err
	}
	in := io.Reader(os.Stdin)
	if f.jobs != "-" {
		file, err := os.Open(f.jobs)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	all, err := demand.Read(in)
	if err != nil {
		return err
	}
	if o.Jobs = all.Jobs; f.days == 0 {
		o.Until = all.Until.Truncate(time.Second) + time.Second
	}
	return nil
}

// changed is the farm as it might be.
func (f planFlags) changed(ctx context.Context, o capacity.Options) (capacity.Options, error) {
	o.VMCPUs = f.vmCPUs
	more, err := f.farm(ctx, f.add)
	if err != nil {
		return o, err
	}
	all := slices.Concat(o.Hosts, more)
	for i, h := range all {
		if f.noSMT {
			h = h.WithoutSMT()
		}
		if f.pages != "" {
			size, err := pageSize(f.pages)
			if err != nil {
				return o, err
			}
			h = h.WithPages(size)
			o.Shape.Pages = []farm.Bytes{size}
		}
		all[i] = h
	}
	o.Hosts = all
	if f.memory != "" {
		size, err := farm.ParseBytes(f.memory)
		if err != nil {
			return o, err
		}
		if size < farm.MiB {
			return o, app.Usage("for example 3G", "--memory-per-cpu %s is too little", f.memory)
		}
		o.Jobs = capacity.Asking(o.Jobs, size)
	}
	return o, f.shape(&o.Shape)
}
