package batchsystem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/atomicfile"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/htcondor"
	"github.com/grange-project/grange/internal/batch/htcondor/setup"
	"github.com/grange-project/grange/internal/classad"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/job"
	agentconf "github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/inherited"
	"github.com/grange-project/grange/internal/runner"
	"github.com/grange-project/grange/internal/version"
)

// condorCommands are the commands for HTCondor.
type condorCommands struct{ *app.App }

func (a condorCommands) htcondorCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "htcondor", Short: "Set up and check HTCondor for jobs in virtual machines"}
	cmd.AddCommand(a.condorInstallCommand(), a.condorCheckCommand(), a.condorWrapperCommand(), a.condorPrepareCommand(),
		a.condorCronCommand())
	return cmd
}

// metalFlag is the one flag that all hooks share.
func metalFlag(cmd *cobra.Command, to *string) {
	words := []string{string(htcondor.MetalNever), string(htcondor.MetalAsked), string(htcondor.MetalDefault)}
	cmd.Flags().StringVar(to, "metal", string(htcondor.MetalAsked),
		"`WHICH` jobs run on the host itself: never, asked (WantVM = False) or default (all but WantVM = True)")
	cmd.RegisterFlagCompletionFunc("metal", cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

func parseMetal(word string) (htcondor.Metal, error) {
	if !slices.Contains(htcondor.Metals, htcondor.Metal(word)) {
		return "", app.Usage("--metal never|asked|default", "--metal %q", word)
	}
	return htcondor.Metal(word), nil
}

func (a condorCommands) condorWrapperCommand() *cobra.Command {
	var metal string
	cmd := &cobra.Command{
		Use:   "wrapper [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run an HTCondor job in a virtual machine (USER_JOB_WRAPPER)",
		Long: `Run a job in a virtual machine, or on the host if its ad and the site's configuration say
so. The command is HTCondor's USER_JOB_WRAPPER.

condor_starter runs it in place of the job, as the job's user. The command reads +WantVM,
+VMImage, +VMShape and +VMMounts from the job's ad, and executes
"grange exec --batch htcondor" or the job itself. The agent determines the job's allocation
by itself.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return app.Usage("grange htcondor wrapper -- COMMAND", "no command")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			site, err := parseMetal(metal)
			if err != nil {
				return err
			}
			w, onMetal, err := condorWish(site)
			if err != nil {
				app.PrintError(a.Err, err)
				return app.ExitError{Status: batch.ExitNever}
			}
			if onMetal {
				err := inherited.Exec(args[0], args, os.Environ())
				fmt.Fprintf(a.Err, "grange: %s: %v\n", args[0], err)
				return app.ExitError{Status: shellStatus(err)}
			}
			a.SiteSocket(cmd)
			words := condorExec(a.Socket, w, args)
			again := a.Tree(app.Group{Title: "Jobs", Commands: job.Commands(a.App)}) // which sets a.socket anew
			again.SetArgs(words)
			return again.ExecuteContext(cmd.Context())
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().SetInterspersed(false)
	metalFlag(cmd, &metal)
	return cmd
}

// shellStatus is what shells end with when a program cannot be run.
func shellStatus(err error) int {
	if errors.Is(err, os.ErrNotExist) {
		return 127
	}
	return 126
}

// condorWish is what the job's own ad asks for, and where that lets it run. The two variables are the starter's: it
// sets them after the job's own.
func condorWish(site htcondor.Metal) (htcondor.Wish, bool, error) {
	ad, err := htcondor.ReadJobAd(os.Getenv("_CONDOR_JOB_AD"), os.Getenv("_CONDOR_SLOT"), os.Getppid())
	if err != nil {
		return htcondor.Wish{}, false, err
	}
	w, err := htcondor.WishOf(ad)
	if err != nil {
		return w, false, err
	}
	onMetal, err := site.OnMetal(w)
	return w, onMetal, err
}

func condorExec(socket string, w htcondor.Wish, command []string) []string {
	args := []string{"exec", "--batch", string(farm.HTCondor), "--socket", socket}
	if w.Image != "" {
		args = append(args, "--image", w.Image)
	}
	if w.Shape != "" {
		args = append(args, "--shape", w.Shape)
	}
	for _, m := range w.Mounts {
		args = append(args, "--bind", m)
	}
	return append(append(args, "--"), command...)
}

func (a condorCommands) condorPrepareCommand() *cobra.Command {
	var metal string
	var requeues int
	cmd := &cobra.Command{
		Use:   "prepare",
		Short: "Check, before a job, that its virtual machine can be created here",
		Long: `Check, before a job starts, that its virtual machine can be created on this host. The
command is HTCondor's prepare hook, for sites that use one.

condor_starter runs it as the job's user, with the job's ad on standard input. The command
asks the agent for the job's allocation and for the image. If the host cannot create the VM,
the job is returned to the queue before any part of it has run; a job that is returned too
often is held. The exit status is always 0: the result is in the output.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.SiteSocket(cmd)
			site, err := parseMetal(metal)
			if err != nil {
				return err
			}
			const most = 4 << 20
			text, err := io.ReadAll(io.LimitReader(os.Stdin, most))
			if err != nil {
				return err
			}
			ad, err := classad.Parse(string(text))
			if err != nil {
				return err
			}
			if err := a.condorReady(cmd.Context(), site, ad); err != nil {
				message, _ := app.Explain(err)
				_, err = io.WriteString(a.Out, setup.NotReady(ad, message, requeues, isFinal(err)))
				return err
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&requeues, "requeues", setup.Standard().Requeues,
		"number of times that a job may be queued again")
	metalFlag(cmd, &metal)
	return cmd
}

// isFinal reports what trying again does not change.
func isFinal(err error) bool {
	own := new(farm.Error)
	return errors.As(err, &own) && (own.Kind == farm.Invalid || own.Kind == farm.Denied) || runner.IsDenial(err)
}

// condorReady reports why a job's VM can not be made here.
func (a condorCommands) condorReady(ctx context.Context, site htcondor.Metal, ad classad.Ad) error {
	w, err := htcondor.WishOf(ad)
	if err != nil {
		return err
	}
	if onMetal, err := site.OnMetal(w); err != nil || onMetal {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	grant, err := a.Client().Grant(ctx)
	if err != nil {
		return err
	}
	image := w.Image
	if image == "" {
		image = grant.Image
	}
	images, err := a.Client().Images(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(images, func(i api.Image) bool { return i.Name == image }) {
		return &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoImage, Message: "this host has no image " + image,
			Hint: "grange image list"}
	}
	return nil
}

func (a condorCommands) condorCronCommand() *cobra.Command {
	var metal string
	cmd := &cobra.Command{
		Use:   "cron",
		Short: "Print this host's VM capacity as attributes of its machine ad",
		Long: `Print this host's capacity for virtual machines, as attributes of its machine ad. The
command is a job of the startd's cron.

GrangeReady is true while the agent answers. Jobs match on it, on GrangeImages and,
optionally, on GrangeFreeSlots, the number of CPUs that no VM holds.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			site, err := parseMetal(metal)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), 20*time.Second)
			defer cancel()
			s := setup.Host{Metal: site, Version: version.String()}
			images, err := a.Client().Images(ctx)
			for _, i := range images {
				s.Images = append(s.Images, i.Name)
			}
			if err == nil {
				host, hostErr := a.Client().Host(ctx)
				err = hostErr
				if free, parseErr := farm.ParseCPUSet(host.Free); parseErr == nil {
					s.Free = free.Len()
				}
			}
			if err != nil {
				s.Problem, _ = app.Explain(err)
			}
			_, err = io.WriteString(a.Out, s.Ad()) // an agent that is away is an answer, and no error
			return err
		},
	}
	metalFlag(cmd, &metal)
	return cmd
}

func (a condorCommands) condorInstallCommand() *cobra.Command {
	site := setup.Standard()
	var root, conf, metal string
	var execute, access bool
	cmd := &cobra.Command{
		Use:   "install --execute|--access",
		Short: "Write the HTCondor configuration that runs jobs in virtual machines",
		Long: `Write the HTCondor configuration that runs jobs in virtual machines: with --execute for
hosts that run jobs, with --access for hosts where jobs are submitted.

Files of an earlier installation are overwritten; no other file is changed, and HTCondor is
not reconfigured. Each file begins with a description of its purpose.`,
		Example: `  grange htcondor install --execute --access    # a pool of one machine
  grange htcondor install --execute --metal never --root /srv/image`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if site.Metal, err = parseMetal(metal); err != nil {
				return err
			}
			if !execute && !access {
				return app.Usage("grange htcondor install --execute --access",
					"what is this host? one of --execute and --access")
			}
			site.Socket = a.Socket
			if site.Grange, err = programOnHosts(a.App, site.Grange, root); err != nil {
				return err
			}
			for _, path := range []string{site.Socket, site.Grange, site.Dir, conf} {
				if err := setup.FitPath(path); err != nil {
					return err
				}
			}
			var files []setup.File
			if execute {
				files = site.ExecuteFiles(conf)
			}
			if access {
				files = append(files, site.AccessFile(conf))
			}
			for _, f := range files {
				if err := writeProgram(filepath.Join(root, f.Path), f.Text, f.Program); err != nil {
					return err
				}
			}
			if a.JSON {
				written := []string{}
				for _, f := range files {
					written = append(written, filepath.Join(root, f.Path))
				}
				return a.PrintJSON(map[string]any{"files": written,
					"next": "condor_reconfig, then grange htcondor check"})
			}
			_, err = io.WriteString(a.Out, setup.Explain(files))
			return err
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&execute, "execute", false, "this host runs jobs")
	flags.BoolVar(&access, "access", false, "jobs are submitted on this host")
	flags.StringVar(&root, "root", "/", "write below `DIR`, the root of an image")
	flags.StringVar(&conf, "config-dir", "/etc/condor/config.d", "`DIR` from which HTCondor reads its configuration")
	flags.StringVar(&site.Dir, "hooks", site.Dir,
		"`DIR` for the wrapper and hooks; not below /tmp, because jobs have a private /tmp")
	flags.BoolVar(&site.Prepare, "prepare", false,
		"install a prepare hook as well; with one, HTCondor 23.9 uses no control groups")
	flags.StringVar(&site.Grange, "grange", "", "`PATH` of grange on that host (default: this program)")
	metalFlag(cmd, &metal)
	return cmd
}

// writeProgram writes one file in the place of an older one, as root's.
func writeProgram(path, text string, program bool) error {
	mode := os.FileMode(0o644)
	if program {
		mode = 0o755
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(path, []byte(text), mode)
}

func (a condorCommands) condorCheckCommand() *cobra.Command {
	var access, execute bool
	var dump string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check this host's HTCondor for jobs in virtual machines",
		Long: `Check this host's HTCondor for jobs in virtual machines. The command reads the configuration
as HTCondor does, checks the files that the configuration names, and queries the agent. It
changes nothing.

Exit status 1: there are problems.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
			defer cancel()
			var config setup.Config
			var err error
			if dump != "" {
				var text []byte
				if text, err = os.ReadFile(dump); err == nil {
					config, err = setup.ParseConfig(string(text))
				}
			} else {
				config, err = setup.ReadConfig(ctx)
			}
			if err != nil {
				return err
			}
			look := setup.Look{Execute: execute, Access: access, Stat: os.Stat, Read: os.ReadFile}
			if !execute && !access { // as the host's daemons say
				look.Execute, look.Access = config.Runs("STARTD"), config.Runs("SCHEDD")
			}
			if !look.Execute && !look.Access {
				return &farm.Error{Kind: farm.Invalid, Code: farm.CodeCondorConfig,
					Message: "HTCondor on this host neither runs nor takes jobs",
					Hint:    "see DAEMON_LIST; or say --execute or --access"}
			}
			if agent, err := agentconf.ReadAgent(app.DefaultConfig); err == nil && dump == "" {
				look.Grants = grants(os.DirFS("/"), agent)
			}
			findings := config.Check(look)
			if look.Execute && dump == "" {
				findings = append(findings, a.checkCondorHost(ctx)...)
			}
			if batch.Worst(findings) == batch.Good {
				findings = append(findings, batch.Finding{ID: "condor", Level: batch.Good,
					Found: "ready for jobs in virtual machines: " + condorRoles(look)})
			}
			return tellFindings(a.App, findings)
		},
	}
	cmd.Flags().BoolVar(&execute, "execute", false, "this host runs jobs (default: from DAEMON_LIST)")
	cmd.Flags().BoolVar(&access, "access", false, "jobs are submitted on this host (default: from DAEMON_LIST)")
	cmd.Flags().StringVar(&dump, "from", "",
		"check `FILE`, the output of condor_config_val -dump on another host, and skip the agent")
	return cmd
}

// checkCondorHost is what only the host itself can tell: its agent, and who may log in beside HTCondor.
func (a condorCommands) checkCondorHost(ctx context.Context) (findings []batch.Finding) {
	if _, err := a.Client().Host(ctx); err != nil {
		message, hint := app.Explain(err)
		findings = append(findings, batch.Finding{ID: "agent", Level: batch.Broken, Found: message,
			Why: "no job starts on this host", Do: hint})
	}
	return append(findings, batch.CheckLogin(os.DirFS("/")))
}

func condorRoles(look setup.Look) string {
	switch {
	case look.Execute && look.Access:
		return "it runs jobs and takes jobs"
	case look.Execute:
		return "it runs jobs"
	}
	return "it takes jobs"
}
