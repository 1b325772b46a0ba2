package host

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/cli/tune"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hosttree"
	"github.com/grange-project/grange/internal/hyper/libvirt"
	"github.com/grange-project/grange/internal/rawqemu"
	"github.com/grange-project/grange/internal/selftest"
	"github.com/grange-project/grange/internal/selftest/report"
	"github.com/grange-project/grange/internal/selftest/verdict"
	"github.com/grange-project/grange/internal/tuning/verify"
	"github.com/grange-project/grange/internal/version"
	"github.com/grange-project/grange/internal/vmimage"
)

type selftestFlags struct {
	config, image, output string
	only                  []string
	jobs                  int
	list, site, yes       bool
}

// selftestCommands are the commands that try this host.
type selftestCommands struct{ *app.App }

func (a selftestCommands) selftestCommand() *cobra.Command {
	var f selftestFlags
	cmd := &cobra.Command{
		Use: "selftest", Short: "Test that jobs run correctly on this host",
		Args: cobra.NoArgs,
		Long: `Test this host: use of KVM, response time of libvirt, control groups, confinement, a VM of
each shape that fits on the host, with its pins and memory verified, huge pages, streams and
exit status, start time compared with QEMU alone, overhead of memory and CPU, and what is
left behind after many jobs. Each check ends with a verdict, a reason and a remedy.

The tests run jobs through the agent, as users do. They never take resources from other
jobs, and do not test what is in use. If jobs of others are running, the command prints what
it would use and asks for confirmation. The report does not identify the site unless --site
is given. The command must run as root, and needs an agent and an image.

Exit status 0: no verdict is bad. 4: a verdict is bad. 1 and 2: the test was not made. 130:
the test was interrupted.`,
		Example: "  grange selftest\n  grange selftest -o report.html\n  grange selftest --only kvm,start --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.list {
				return a.listChecks()
			}
			if err := f.check(); err != nil {
				return err
			}
			return a.selftest(cmd.Context(), f, cmd.Flags().Changed("config"))
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.output, "output", "o", "",
		"write the report to `FILE`: HTML, or JSON if the name ends in .json")
	flags.StringSliceVar(&f.only, "only", nil, "run only these checks: `NAME,..`")
	flags.BoolVar(&f.list, "list", false, "list the checks")
	flags.IntVar(&f.jobs, "jobs", 50, "number of jobs in the check for leaks")
	flags.BoolVar(&f.site, "site", false, "include the host's name and raw messages in the report")
	flags.BoolVarP(&f.yes, "yes", "y", false, "do not ask for confirmation if jobs of others are running")
	flags.StringVar(&f.image, "image", "", "`IMAGE` to test with (default: the agent's)")
	flags.StringVar(&f.config, "config", app.DefaultConfig, "`FILE` with the agent's configuration")
	cmd.RegisterFlagCompletionFunc("image", a.CompleteImages)
	app.Complete(cmd, "only", checkNames)
	return cmd
}

func checkNames() []string {
	var names []string
	for _, c := range verdict.Checks {
		names = append(names, c.Name)
	}
	return names
}

func (a selftestCommands) listChecks() error {
	if a.JSON {
		return a.PrintJSON(checkNames())
	}
	t := output.NewColumns(a.Out)
	for _, c := range verdict.Checks {
		fmt.Fprintf(t, "%s\t%s\n", c.Name, c.Title)
	}
	return t.Flush()
}

func (f selftestFlags) check() error {
	const mostJobs = 10000
	for _, name := range f.only {
		if !verdict.Known(name) {
			return app.UnknownWord("only", name, checkNames())
		}
	}
	switch {
	case f.jobs < 1 || f.jobs > mostJobs:
		return app.Usage(fmt.Sprintf("there are 1 to %d", mostJobs), "--jobs %d", f.jobs)
	case os.Geteuid() != 0:
		return &farm.Error{Kind: farm.Denied, Code: farm.CodeUsage, Message: "only root can test this host",
			Hint: "run it as root: it looks at processes of VMs, and takes CPUs for QEMU alone"}
	}
	return nil
}

func (a selftestCommands) selftest(ctx context.Context, f selftestFlags, named bool) error {
	c, err := a.selftestConfig(ctx, f, named)
	if err != nil {
		return err
	}
	if err := a.consent(ctx, c, f.yes); err != nil {
		return err
	}
	r, err := selftest.Run(ctx, c)
	if errors.Is(err, context.Canceled) {
		fmt.Fprintln(a.Err, "grange: the test was given up; its VMs are gone")
		return app.ExitError{Status: app.ExitInterrupted}
	}
	if err != nil {
		return err
	}
	if err := a.writeSelftest(f.output, r); err != nil {
		return err
	}
	if r.Verdict == verdict.Bad {
		return app.ExitError{Status: app.ExitBad}
	}
	return nil
}

func (a selftestCommands) writeSelftest(file string, r report.Report) error {
	if file != "" {
		write := report.HTML
		if strings.HasSuffix(strings.ToLower(file), ".json") {
			write = report.JSON
		}
		if err := app.WriteFile(file, func(w io.Writer) error { return write(w, r) }); err != nil {
			return err
		}
	}
	if a.JSON {
		return report.JSON(output.RawOf(a.Out), r)
	}
	return report.Text(a.Out, r)
}

// consent reports what the test would use where others use the host, and asks whether it may.
func (a selftestCommands) consent(ctx context.Context, c selftest.Config, yes bool) error {
	text, busy, err := selftest.Others(ctx, c)
	if err != nil || !busy {
		return err
	}
	fmt.Fprintln(a.Err, text)
	if yes {
		return nil
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return app.Usage("give --yes, or drain the host first", "others use this host, and there is nobody to ask")
	}
	fmt.Fprint(a.Err, "Go on? [y/N] ")
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	if word := strings.ToLower(strings.TrimSpace(answer)); word != "y" && word != "yes" {
		return app.ExitError{Status: app.ExitFailed}
	}
	return nil
}

func (a selftestCommands) selftestConfig(ctx context.Context, f selftestFlags, named bool) (selftest.Config, error) {
	agent, err := app.ReadConfig(f.config, named)
	if err != nil {
		return selftest.Config{}, err
	}
	own, err := app.OwnPath()
	if err != nil {
		return selftest.Config{}, err
	}
	guest := agent.GuestFile
	if guest == "" {
		guest = filepath.Join(filepath.Dir(own), "grange-guest")
	}
	if _, err := os.Stat(guest); err != nil {
		return selftest.Config{}, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadConfig,
			Message: "grange-guest is not at " + guest, Hint: "set guest_file in " + f.config}
	}
	h, tree, err := app.HostFacts(ctx, "")
	if err != nil {
		return selftest.Config{}, err
	}
	tree.Close()
	return selftest.Config{Client: a.Client(), Socket: a.Socket, Grange: own, GuestFile: guest, Image: f.image,
		Facts: h, Version: version.Long(),
		Jobs: f.jobs, Only: f.only, Site: f.site, Progress: a.Err, VMUIDs: agent.VMUIDs,
		Paths: selftest.Paths{State: agent.StateDir, Run: agent.RunDir, Libvirt: filepath.Dir(agent.Libvirt),
			LibvirtLogs: agent.LibvirtLogs},
		Answer: func(ctx context.Context) (time.Duration, error) { return libvirt.Answer(ctx, agent.Libvirt) },
		Prove:  proveLive,
		Raw: func(image string) (rawqemu.Guest, string, error) {
			return rawGuest(agent.Areas.Images.Path, image)
		},
	}, nil
}

// proveLive is `grange tune verify` of this host.
func proveLive(ctx context.Context) (verify.Report, error) {
	tree, err := hosttree.Live(ctx)
	if err != nil {
		return verify.Report{}, err
	}
	defer tree.Close()
	r, _, err := tune.VerifyTree(tree)
	return r, err
}

// rawGuest is an image for QEMU alone.
func rawGuest(dir, name string) (g rawqemu.Guest, why string, err error) {
	store, err := vmimage.Open(dir)
	if err != nil {
		return g, "", err
	}
	defer store.Close()
	i, err := store.Get(name)
	if err != nil {
		return g, "", err
	}
	if i.Kind == vmimage.Root {
		return g, "the image is a container's, which has no kernel", nil
	}
	if i.Disk() != "" {
		return g, "the image is a disk, which QEMU alone does not boot to the same point", nil
	}
	return rawqemu.Guest{Kernel: i.Kernel(), Initrd: i.Initrd(), Cmdline: i.Cmdline}, "", nil
}
