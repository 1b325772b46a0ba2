package cli

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

type execFlags struct {
	image, shape, memory, scratch, pageSize, network, workdir string
	purpose, cpuModel, threadPolicy, emulator, numa, cache    string
	cpus                                                      int
	binds, env                                                []string
	limit                                                     time.Duration
	wait, noWait, tty, keep, verbose                          bool
	batch                                                     string
}

func (a *app) execCommand() *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:   "exec [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command in a fresh virtual machine as if it ran here",
		Long: `Run a command in a fresh virtual machine, shaped for this host, as if it ran here.

Input, output and errors are three separate streams; the exit status comes back, or 128 and the number of the signal that
ended the command. INT, TERM, HUP, USR1, USR2 and WINCH reach the command; TSTP and CONT stop and continue the whole VM;
INT twice within three seconds gives up. The command runs as you, with your environment, and sees the directories that you
bind. Its working directory is yours if that is bound, and /tmp otherwise.

Exit status 199: no VM was started and the command did not run. 198: the VM ended under the command, which may have run in
part. 2: the request makes no sense.`,
		Example: `  grange exec -- uname -a
  echo data | grange exec -- cat
  grange exec --cpus 4 --memory 8G --scratch 20G --bind /data:/data:ro --bind . -- ./analyse /data/run7`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("grange exec -- COMMAND", "no command")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			request, binds, err := f.request(args)
			if err != nil {
				printError(a.err, err)
				return exitError{exitUsage}
			}
			r := newRunner(a, request, binds)
			r.limit, r.verbose = f.limit, f.verbose
			return exitError{r.run()}
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	flags.StringVar(&f.image, "image", "", "image to start from (default: as the agent is configured)")
	flags.StringVar(&f.shape, "shape", "", "named shape of the agent's configuration")
	flags.IntVar(&f.cpus, "cpus", 0, "CPUs")
	flags.StringVar(&f.memory, "memory", "", "memory, as 2G")
	flags.StringVar(&f.scratch, "scratch", "", "disk for /tmp, as 20G (default: /tmp is in memory)")
	flags.StringVar(&f.pageSize, "page-size", "", "pages for the VM's memory: 2M, 1G, 0 for ordinary ones, a list as 1G,2M with the best first, or any")
	flags.StringVar(&f.network, "network", "", "none, or user: outgoing connections only")
	flags.StringVar(&f.purpose, "purpose", "", "what the VM is tuned for: compute (thrown away) or service (fit to be migrated)")
	flags.StringVar(&f.cpuModel, "cpu-model", "", "host-passthrough, host-model, maximum, or the name of a model (default: as the purpose says)")
	flags.StringVar(&f.threadPolicy, "thread-policy", "", "SMT siblings: prefer whole cores, require them, or isolate one vCPU a core")
	flags.StringVar(&f.emulator, "emulator", "", "QEMU's own threads: beside the vCPUs or on reserved CPUs, or isolate on one more CPU")
	flags.StringVar(&f.numa, "numa", "", "guest NUMA: auto, none, or a number of cells")
	flags.StringVar(&f.cache, "cache", "", "cache mode of disks: writeback, none, writethrough, directsync or unsafe (default: as the purpose says)")
	flags.StringArrayVar(&f.binds, "bind", nil, "show a directory in the VM: `SRC[:DST[:ro]]` (repeatable)")
	flags.StringArrayVar(&f.env, "env", nil, "set a variable: `K=V` (repeatable)")
	flags.StringVar(&f.workdir, "workdir", "", "working directory in the VM")
	flags.StringVar(&f.batch, "batch", "", "run in the place of a job of `SYSTEM`: slurm, gridengine, htcondor, pbs or lsf; what it gave the job is what the VM gets")
	flags.DurationVar(&f.limit, "time", 0, "TERM after this time, as 1h30m, and the end 30 s later")
	flags.BoolVar(&f.wait, "wait", true, "wait for room on this host")
	flags.BoolVar(&f.noWait, "no-wait", false, "fail at once when there is no room")
	flags.BoolVar(&f.tty, "tty", false, "give the command a terminal")
	flags.BoolVar(&f.keep, "keep", false, "keep the VM when the command has ended, until it is stopped by hand")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "print the phases with their milliseconds")
	cmd.MarkFlagsMutuallyExclusive("wait", "no-wait")
	cmd.RegisterFlagCompletionFunc("image", a.completeImages)
	for flag, words := range map[string][]string{
		"network": {"none", "user"}, "purpose": {"compute", "service"}, "cpu-model": {"host-passthrough", "host-model", "maximum"},
		"thread-policy": {"prefer", "require", "isolate"}, "emulator": {"beside", "isolate"}, "numa": {"auto", "none", "2"},
		"cache": {"writeback", "none", "writethrough", "directsync", "unsafe"}, "page-size": {"any", "2M", "1G", "1G,2M", "0"},
		"batch": {"slurm", "gridengine", "htcondor", "pbs", "lsf"},
	} {
		cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

// bindSource is a directory of the host that the job sees.
type bindSource struct {
	dir string
	api.Bind
}

// request turns the flags into what the agent is asked for.
func (f *execFlags) request(args []string) (api.JobRequest, []bindSource, error) {
	r := api.JobRequest{ID: api.NewID(), Image: f.image, Shape: f.shape, CPUs: f.cpus, Network: f.network, Purpose: f.purpose,
		CPUModel: f.cpuModel, ThreadPolicy: f.threadPolicy, Emulator: f.emulator, NUMA: f.numa, Cache: f.cache, Argv: args,
		Env: environment(f.env), Home: os.Getenv("HOME"), NoWait: f.noWait || !f.wait, Keep: f.keep, Batch: f.batch}
	if f.cpus < 0 {
		return r, nil, usage("", "%d CPUs", f.cpus)
	}
	memory, err := f.size(f.memory)
	if err != nil {
		return r, nil, err
	}
	if memory != nil {
		r.Memory = *memory
	}
	if r.Scratch, err = f.size(f.scratch); err != nil {
		return r, nil, err
	}
	if r.PageSize, err = f.size(f.pageSize); err != nil {
		r.PageSize, r.Pages = nil, f.pageSize // several, or a word
	}
	for _, kv := range f.env {
		if key, _, ok := strings.Cut(kv, "="); !ok || key == "" {
			return r, nil, usage("--env NAME=VALUE", "--env %q", kv)
		}
	}
	binds, err := parseBinds(f.binds)
	if err != nil {
		return r, nil, err
	}
	for _, b := range binds {
		r.Binds = append(r.Binds, b.Bind)
	}
	r.Dir = f.workdir
	if r.Dir == "" {
		r.Dir = workdir(binds)
	}
	if !filepath.IsAbs(r.Dir) {
		return r, nil, usage("", "--workdir %q is not an absolute path", r.Dir)
	}
	if f.tty {
		rows, cols, err := terminalSize()
		if err != nil {
			return r, nil, usage("leave --tty out", "--tty needs a terminal here")
		}
		r.Terminal = &api.Size{Rows: rows, Cols: cols}
	}
	return r, binds, nil
}

func (f *execFlags) size(text string) (*uint64, error) {
	if text == "" {
		return nil, nil
	}
	b, err := farm.ParseBytes(text)
	v := uint64(b)
	return &v, err
}

// parseBinds reads SRC[:DST[:ro]]; SRC:ro means the same path, read-only.
func parseBinds(texts []string) ([]bindSource, error) {
	var binds []bindSource
	for _, text := range texts {
		parts := strings.Split(text, ":")
		readOnly := false
		if last := parts[len(parts)-1]; len(parts) > 1 && (last == "ro" || last == "rw") {
			readOnly, parts = last == "ro", parts[:len(parts)-1]
		}
		if len(parts) > 2 || parts[0] == "" {
			return nil, usage("--bind SRC[:DST[:ro]]", "--bind %q", text)
		}
		source, err := filepath.Abs(parts[0])
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(source)
		switch {
		case err != nil:
			return nil, usage("", "--bind %s: %v", text, err)
		case !info.IsDir():
			return nil, usage("bind the directory that holds it", "--bind %s: %s is not a directory", text, source)
		}
		target := source
		if len(parts) == 2 {
			target = parts[1]
		}
		if !filepath.IsAbs(target) || filepath.Clean(target) == "/" {
			return nil, usage("", "--bind %s: the place in the VM is an absolute path below /", text)
		}
		binds = append(binds, bindSource{source, api.Bind{Target: filepath.Clean(target), ReadOnly: readOnly}})
	}
	return binds, nil
}

// workdir is our own directory as the VM sees it, or /tmp where it does not.
func workdir(binds []bindSource) string {
	here, err := os.Getwd()
	if err != nil {
		return "/tmp"
	}
	for _, b := range binds {
		if below, err := filepath.Rel(b.dir, here); err == nil && below != ".." && !strings.HasPrefix(below, "../") {
			return filepath.Join(b.Target, below)
		}
	}
	return "/tmp"
}

// environment is ours and what was set on top. TMPDIR names a directory of this host: the VM has /tmp.
func environment(set []string) []string {
	var env []string
	for _, kv := range append(os.Environ(), set...) {
		if strings.HasPrefix(kv, "TMPDIR=") || strings.HasPrefix(kv, "GRANGE_SOCKET=") {
			continue
		}
		env = append(env, kv)
	}
	return env
}

func terminalSize() (rows, cols uint16, err error) {
	w, h, err := term.GetSize(int(os.Stdin.Fd()))
	return uint16(h), uint16(w), err
}
