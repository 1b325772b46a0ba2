package batchsystem

import (
	"context"
	"fmt"
	"log/slog"
	"log/syslog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/batch/slurm/worker"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
)

// DefaultWorkers is where the configuration of workers is looked for.
const DefaultWorkers = "/etc/grange/worker.toml"

// workerCommands are the commands of nodes of Slurm that are VMs.
type workerCommands struct{ *app.App }

func (a workerCommands) workerCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "worker", Short: "Run virtual machines that join Slurm as nodes",
		Long: `Run virtual machines that join Slurm as nodes. slurmctld calls resume, suspend, fail, prolog
and epilog; config prints the configuration for that. watch runs beside slurmctld and
repairs inconsistencies.`}
	var path string
	cmd.PersistentFlags().StringVar(&path, "config", DefaultWorkers, "configuration `FILE`")
	nodes := func(use, short string, run func(*worker.Pool, context.Context, string) error) *cobra.Command {
		return &cobra.Command{Use: use + " HOSTLIST", Short: short, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return a.withPool(path, func(p *worker.Pool) error { return run(p, cmd.Context(), args[0]) })
			}}
	}
	job := func(use, short string, run func(p *worker.Pool, ctx context.Context, job,
		nodes string) error) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				list := os.Getenv("SLURM_JOB_NODELIST")
				if list == "" {
					return app.Usage("let slurmctld call it", "SLURM_JOB_NODELIST is not set")
				}
				return a.withPool(path, func(p *worker.Pool) error {
					return run(p, cmd.Context(),
						os.Getenv("SLURM_JOB_ID"), list)
				})
			}}
	}
	cmd.AddCommand(
		nodes("resume", "Create a VM for each node (Slurm's ResumeProgram)",
			func(p *worker.Pool, ctx context.Context, list string) error {
				return p.Resume(ctx, list, os.Getenv("SLURM_RESUME_FILE"))
			}),
		nodes("suspend", "End the VMs of nodes (Slurm's SuspendProgram)", (*worker.Pool).Suspend),
		nodes("fail", "End VMs that did not join in time (Slurm's ResumeFailProgram)", (*worker.Pool).Fail),
		job("prolog", "Wait until the job's nodes have joined (Slurm's PrologSlurmctld)",
			func(p *worker.Pool, ctx context.Context, job, list string) error {
				return p.Prolog(ctx, job, list, p.BootTimeout)
			}),
		job("epilog", "Create a fresh VM for the next job (Slurm's EpilogSlurmctld)",
			func(p *worker.Pool, ctx context.Context, _, list string) error { return p.Epilog(ctx, list) }),
		&cobra.Command{Use: "watch", Short: "Keep nodes and VMs consistent; runs beside slurmctld", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return a.withPool(path, func(p *worker.Pool) error { return p.Watch(cmd.Context()) })
			}},
		a.workerList(), a.workerStart(), a.workerStop(&path), a.workerConfig(&path),
	)
	return cmd
}

// withPool runs with what worker.toml says. slurmctld throws away what its programs write: they log to syslog as well.
func (a workerCommands) withPool(path string, run func(*worker.Pool) error) error {
	c, err := worker.ReadConfig(path, a.Socket)
	if err != nil {
		return err
	}
	p, err := pool(c)
	if err != nil {
		return err
	}
	log, end, err := a.workerLog(c.Log)
	if err != nil {
		return err
	}
	defer end()
	p.Log = log
	return run(p)
}

// workerLog is the journal for the unit of `worker watch`, else standard error and syslog; and the file, where one is
// named.
func (a workerCommands) workerLog(file string) (log *slog.Logger, end func(), err error) {
	handlers, end := []slog.Handler{a.ServiceLog("grange-worker").Handler()}, func() {}
	if !a.InJournal() {
		if s, err := syslog.New(syslog.LOG_DAEMON|syslog.LOG_INFO, "grange-worker"); err == nil {
			handlers, end = append(handlers, slog.NewTextHandler(s, nil)), func() { s.Close() }
		}
	}
	if file != "" {
		f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
		if err != nil {
			end()
			return nil, nil, err
		}
		before := end
		handlers, end = append(handlers, slog.NewTextHandler(f, nil)), func() { before(); f.Close() }
	}
	return slog.New(slog.NewMultiHandler(handlers...)), end, nil
}

func pool(c worker.Config) (*worker.Pool, error) {
	p := &worker.Pool{Slurm: worker.Scontrol{Path: c.Scontrol, Conf: c.SlurmConf}, Warm: c.Warm,
		WaitTimeout: c.WaitTimeout, BootTimeout: c.BootTimeout, Restarts: c.Restarts}
	for _, h := range c.Hosts {
		nodes, err := nodeNames(h.Nodes)
		if err != nil {
			return nil, err
		}
		p.Hosts = append(p.Hosts, worker.Host{Nodes: nodes, Agent: api.NewClient(h.Socket), Name: h.Socket})
	}
	for _, i := range c.Images {
		nodes, err := nodeNames(i.Nodes)
		if err != nil {
			return nil, err
		}
		p.Images = append(p.Images, worker.Image{Feature: i.Feature, Partition: i.Partition, Nodes: nodes,
			Image: i.Image, Shape: i.Shape})
	}
	return p, nil
}

// nodeNames expands a host list of which a member may be "name*".
func nodeNames(list string) ([]string, error) {
	if list == "*" {
		return []string{"*"}, nil
	}
	var names []string
	plain := list
	for word := range strings.SplitSeq(list, ",") {
		if strings.HasSuffix(word, "*") && !strings.ContainsAny(word, "[]") {
			names = append(names, word)
			plain = strings.Replace(plain, word, "", 1)
		}
	}
	hosts, err := worker.Expand(strings.Trim(strings.ReplaceAll(plain, ",,", ","), ","))
	return append(names, hosts...), err
}

func (a workerCommands) workerList() *cobra.Command {
	return &cobra.Command{Use: "list",
		Short: "List the workers of this host, and active back-offs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			workers, err := a.Client().Workers(cmd.Context())
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(workers)
			}
			host, err := a.Client().Host(cmd.Context())
			if err != nil {
				return err
			}
			for _, b := range host.BackOffs {
				if b.Kind != "user" {
					fmt.Fprintf(a.Out, "%s backs off until %s, and then one VM is tried: %s\n",
						strings.TrimSpace(b.Kind+" "+b.Name), b.Until.Local().Format("15:04:05"), b.Last)
				}
			}
			if len(workers) == 0 {
				_, err := fmt.Fprintln(a.Out, "no workers")
				return err
			}
			t := output.NewColumns(a.Out)
			fmt.Fprintln(t, "NODE\tSTATE\tVM\tADDRESS\tIMAGE\tCPUS\tMEMORY\tAGE")
			for _, w := range workers {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.19s\t%d\t%v\t%v\n", w.Name, w.State, w.VM, w.Address, w.Image, w.CPUs,
					farm.Bytes(w.Memory).Rounded(), app.Age(w.Created))
			}
			return t.Flush()
		}}
}

func (a workerCommands) workerStart() *cobra.Command {
	var r api.WorkerRequest
	var dynamic bool
	var features, memory string
	cmd := &cobra.Command{Use: "start NODE...",
		Short: "Start workers on this host", Args: cobra.MinimumNArgs(1),
		Long: `Start workers on this host. A CLOUD node that is powered down becomes idle when its VM has
joined. With --dynamic, the node needs no line in slurm.conf: it registers its own
configuration with Slurm.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if (features != "") && !dynamic {
				return app.Usage("add --dynamic", "--feature is for dynamic nodes; slurm.conf has the features of others")
			}
			if memory != "" {
				size, err := farm.ParseBytes(memory)
				if err != nil {
					return err
				}
				r.Memory = uint64(size)
			}
			if dynamic && (r.CPUs == 0 || r.Memory == 0) {
				return app.Usage("add --cpus and --memory", "a dynamic node reports its size to Slurm")
			}
			if dynamic {
				f := worker.Fragment{Memory: farm.Bytes(r.Memory)}
				r.Conf = fmt.Sprintf("CPUs=%d RealMemory=%d", r.CPUs, f.RealMemory())
				if features != "" {
					r.Conf += " Feature=" + features
				}
			}
			var made []api.Worker
			for _, name := range args {
				r.Name = name
				w, err := a.Client().StartWorker(cmd.Context(), r)
				if err != nil {
					return err
				}
				made = append(made, w)
				if !a.JSON {
					fmt.Fprintf(a.Out, "%s  %s  %s\n", w.Name, w.VM, w.Address)
				}
			}
			if a.JSON {
				return a.PrintJSON(made)
			}
			return nil
		}}
	f := cmd.Flags()
	f.BoolVar(&dynamic, "dynamic", false, "register nodes that are not in slurm.conf")
	f.StringVar(&features, "feature", "", "features of dynamic nodes, in Slurm's syntax")
	f.StringVar(&r.Image, "image", "", "`IMAGE`, one marked as the site's (default: that of the agent's [worker])")
	f.StringVar(&r.Shape, "shape", "", "name of the `SHAPE`")
	f.IntVar(&r.CPUs, "cpus", 0, "number of vCPUs")
	f.StringVar(&memory, "memory", "", "`SIZE` of the VM's memory")
	f.IntVar(&r.WaitTimeout, "wait-timeout", 0, "`SECONDS` to wait for room")
	app.RenamedFlag(cmd.Flags(), "patience", "wait-timeout")
	return cmd
}

func (a workerCommands) workerStop(path *string) *cobra.Command {
	return &cobra.Command{Use: "stop NODE...",
		Short: "End workers; Slurm requeues their jobs and deletes dynamic nodes",
		Args:  cobra.MinimumNArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			return a.withPool(*path, func(p *worker.Pool) error {
				stopped := []string{}
				for _, name := range args {
					if err := p.Remove(cmd.Context(), name); err != nil {
						return err
					}
					if stopped = append(stopped, name); !a.JSON {
						fmt.Fprintf(a.Out, "%s stopped\n", name)
					}
				}
				if a.JSON {
					return a.PrintJSON(map[string][]string{"stopped": stopped})
				}
				return nil
			})
		}}
}

func (a workerCommands) workerConfig(path *string) *cobra.Command {
	f := worker.Fragment{Programs: "/usr/libexec/grange/slurm"}
	var memory string
	var write bool
	cmd := &cobra.Command{Use: "config",
		Short: "Print the slurm.conf lines for workers, and write their programs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if f.Memory, err = farm.ParseBytes(memory); err != nil {
				return err
			}
			if _, err := worker.Expand(f.Nodes); err != nil {
				return err
			}
			if f.CPUs < 1 || f.RealMemory() < 1 {
				return app.Usage("give the size of the VMs", "nodes of %d CPUs and %v", f.CPUs, f.Memory)
			}
			if f.Programs, err = filepath.Abs(f.Programs); err != nil {
				return err
			}
			if write {
				own, err := app.OwnPath()
				if err != nil {
					return err
				}
				conf, err := filepath.Abs(*path)
				if err != nil {
					return err
				}
				if err := worker.WritePrograms(f.Programs, own, conf); err != nil {
					return err
				}
			}
			if a.JSON {
				return a.PrintJSON(map[string]string{"slurm.conf": f.String(), "programs": f.Programs})
			}
			_, err = fmt.Fprint(a.Out, f.String())
			return err
		}}
	flags := cmd.Flags()
	flags.StringVar(&f.Programs, "programs", f.Programs, "`DIR` of the programs that slurmctld calls")
	flags.BoolVar(&write, "write", false, "write the programs to --programs")
	flags.StringVar(&f.Nodes, "nodes", "vwn[1-4]", "CLOUD `NODES`, as a host list")
	flags.IntVar(&f.CPUs, "cpus", 1, "CPUs per node")
	flags.StringVar(&memory, "memory", "2G", "memory `SIZE` of a node's VM")
	flags.StringVar(&f.Features, "feature", "", "features of the nodes")
	flags.StringVar(&f.Partition, "partition", "vm", "partition of the nodes")
	flags.StringVar(&f.Dynamic, "dynamic", "", "feature and partition of dynamic nodes")
	flags.DurationVar(&f.BootTimeout, "boot-timeout", 5*time.Minute,
		"Slurm's ResumeTimeout; must equal boot_timeout in worker.toml")
	flags.DurationVar(&f.IdleTime, "idle", 5*time.Minute, "time that a node may be idle")
	return cmd
}
