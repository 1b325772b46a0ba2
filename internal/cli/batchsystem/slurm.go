package batchsystem

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/batch/slurm"
	"github.com/grange-project/grange/internal/batch/slurm/setup"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/program"
)

// slurmCommands are the commands for Slurm.
type slurmCommands struct{ *app.App }

func (a slurmCommands) slurmCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "slurm", Short: "Set up and check Slurm for jobs in virtual machines"}
	cmd.AddCommand(a.slurmInstall(), a.slurmCompile(), a.slurmUninstall(), a.slurmCheck(), a.slurmCatalogue(),
		a.slurmProlog(), ociCommands(a).slurmOCI())
	return cmd
}

// slurmPlaces are the flags that install and uninstall share.
func (a slurmCommands) slurmPlaces(cmd *cobra.Command, i *setup.Install) {
	flags := cmd.Flags()
	flags.StringVar(&i.Root, "root", "/", "write below `DIR`, for a package or an image of a host")
	flags.StringVar(&i.ConfDir, "conf-dir", "/etc/slurm", "`DIR` of slurm.conf")
	flags.StringVar(&i.PluginDir, "plugin-dir", pluginDir(), "`DIR` for the plug-in")
	flags.BoolVar(&i.Submit, "submit", false, "this host is a submit host that runs no jobs")
	cmd.MarkFlagDirname("root")
	cmd.MarkFlagDirname("conf-dir")
	cmd.MarkFlagDirname("plugin-dir")
}

func (a slurmCommands) slurmInstall() *cobra.Command {
	var i setup.Install
	var dryRun bool
	cmd := &cobra.Command{
		Use: "install", Short: "Compile and install the plug-in and its prolog",
		Long: `Compile the plug-in against the headers of this host's Slurm, and install the plug-in, its
line in plugstack.conf.d and a prolog. slurm.conf and plugstack.conf of the site are changed
only with --write; without it, the missing lines are printed as a diff. Run the command
again after each upgrade of Slurm; files that are up to date are not changed.

With --oci, nothing is compiled: the command writes oci.conf, a prolog and an epilog. See
grange slurm oci.`,
		Example: `  grange slurm install --default micro --dry-run
  grange slurm install --default micro --catalogue /etc/slurm/grange-catalogue
  grange slurm install --submit --catalogue /etc/slurm/grange-catalogue
  grange slurm install --oci`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if i.Wrapper == "" {
				self, err := app.OwnPath()
				if err != nil {
					return err
				}
				i.Wrapper = self
			}
			i.Socket = a.Socket
			p, err := i.Plan()
			if err != nil {
				return err
			}
			if !dryRun {
				if err := i.Apply(cmd.Context(), program.Start, p); err != nil {
					return err
				}
			}
			return a.tellSlurmInstall(i, p, dryRun)
		},
	}
	a.slurmPlaces(cmd, &i)
	flags := cmd.Flags()
	flags.StringVar(&i.Include, "include", "", "`DIR` that contains slurm/spank.h")
	flags.StringVar(&i.Wrapper, "wrapper", "", "`PATH` of grange on the hosts (default: this program)")
	flags.StringVar(&i.Checked, "checked", setup.Checked, "`DIR` in which the prolog records what it has checked")
	flags.StringVar(&i.Catalogue, "catalogue", "",
		"`FILE` with the images and shapes that sbatch accepts; see grange slurm catalogue")
	flags.StringVar(&i.Default, "default", "",
		"`IMAGE[:SHAPE]` for jobs that request none, so that no job runs on the host itself")
	flags.Uint32Var(&i.MinUID, "min-uid", 1000, "lowest user ID that the default applies to")
	flags.BoolVar(&i.Metal, "allow-metal", false, "permit jobs to run on the host itself with --no-vm")
	flags.StringVar(&i.Words, "words", slurm.Words, "with --oci: `DIR` in which the prolog leaves messages for jobs")
	flags.BoolVar(&i.OCI, "oci", false,
		"use bundles for --container instead of the plug-in: write oci.conf, a prolog and an epilog, and compile "+
			"nothing")
	flags.BoolVar(&i.Write, "write", false, "change slurm.conf and plugstack.conf too")
	flags.BoolVar(&dryRun, "dry-run", false, "print what would be done")
	return cmd
}

// pluginDir is beside this program's own directory for programs: packages have theirs below /usr.
func pluginDir() string {
	if self, err := app.OwnPath(); err == nil && filepath.Dir(self) == "/usr/bin" {
		return "/usr/lib/grange"
	}
	return "/usr/local/lib/grange"
}

func (a slurmCommands) slurmCompile() *cobra.Command {
	var i setup.Install
	cmd := &cobra.Command{
		Use: "compile", Short: "Compile the plug-in for this host's Slurm",
		Long: `Compile the plug-in against the headers of this host's Slurm, and write it to the path in
plugstack.conf.d/grange.conf, or else to --plugin-dir. No configuration is written. The
package grange-slurm runs this command when it is installed and after each upgrade of Slurm.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := i.Compile(cmd.Context(), program.Start)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(map[string]string{"plugin": file})
			}
			_, err = fmt.Fprintln(a.Out, "compiled "+file)
			return err
		},
	}
	a.slurmPlaces(cmd, &i)
	cmd.Flags().StringVar(&i.Include, "include", "", "`DIR` that contains slurm/spank.h")
	return cmd
}

func (a slurmCommands) slurmUninstall() *cobra.Command {
	var i setup.Install
	cmd := &cobra.Command{
		Use: "uninstall", Short: "Remove the files that install wrote",
		Long: `Remove the plug-in, its line in plugstack.conf.d and the prolog. Lines that install required
in the site's slurm.conf and plugstack.conf are printed as a diff; --write removes them.

A prolog that slurm.conf still names is replaced by a script that does nothing, because
Slurm drains a host whose prolog is missing. Run scontrol reconfigure, then this command
again.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			r, err := i.Removal()
			if err != nil {
				return err
			}
			if err := i.Uninstall(r); err != nil {
				return err
			}
			return a.tellSlurmRemoval(i, r)
		},
	}
	a.slurmPlaces(cmd, &i)
	cmd.Flags().BoolVar(&i.Write, "write", false, "change slurm.conf and plugstack.conf too")
	return cmd
}

func (a slurmCommands) slurmCheck() *cobra.Command {
	conf, submit := "/etc/slurm/slurm.conf", false
	if env := os.Getenv("SLURM_CONF"); env != "" {
		conf = env
	}
	cmd := &cobra.Command{
		Use: "check", Short: "Check this host's Slurm for jobs in virtual machines",
		Long: `Read slurm.conf, plugstack.conf, cgroup.conf, gres.conf, job_container.conf and oci.conf of
this host, check the plug-in, the plug-ins of others and the wrapper, compare RealMemory with
what the agent grants, and report each problem with its consequence and its remedy. The
command changes nothing.

Exit status 1: there is an error because of which jobs do not start, or could run outside of
a VM.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			site, err := setup.ReadSite(cmd.Context(), program.Start, conf)
			if err != nil {
				return err
			}
			if c, err := config.ReadAgent(app.DefaultConfig); err == nil { // a submit host has no agent
				site.ReservedCPUs, site.Grants = c.ReservedCPUs, grants(site.Root, c)
			}
			findings := setup.Check(site)
			if submit {
				findings = setup.SubmitOnly(findings)
			}
			return tellFindings(a.App, findings)
		},
	}
	cmd.Flags().StringVar(&conf, "conf", conf, "slurm.conf to check, a `FILE` in the directory of the other files")
	cmd.Flags().BoolVar(&submit, "submit", false, "this host is a submit host that runs no jobs")
	cmd.MarkFlagFilename("conf")
	return cmd
}

func (a slurmCommands) slurmCatalogue() *cobra.Command {
	var to, file string
	cmd := &cobra.Command{
		Use: "catalogue", Short: "Write the list of images and shapes that sbatch checks --vm against",
		Long: `Write one line for each image and each shape of this host's agent. Store the file where all
submit hosts can read it, and name it with catalogue= in plugstack.conf. sbatch then refuses
an image or shape that is not in the file, before the job is queued.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			images, err := a.Client().Images(cmd.Context())
			if err != nil {
				return err
			}
			conf, err := app.ReadConfig(file, cmd.Flags().Changed("config"))
			if err != nil {
				return err
			}
			var b strings.Builder
			names, shapes := []string{}, slices.AppendSeq([]string{}, maps.Keys(conf.Shapes))
			slices.Sort(shapes)
			for _, i := range images {
				names = append(names, i.Name)
				fmt.Fprintln(&b, "image", i.Name)
			}
			for _, s := range shapes {
				fmt.Fprintln(&b, "shape", s)
			}
			if a.JSON && to == "" {
				return a.PrintJSON(map[string][]string{"images": names, "shapes": shapes})
			}
			if to == "" {
				_, err := fmt.Fprint(a.Out, b.String())
				return err
			}
			return app.WriteFile(to, func(w io.Writer) error {
				_, err := io.WriteString(w, b.String())
				return err
			})
		},
	}
	cmd.Flags().StringVar(&file, "config", app.DefaultConfig, "`FILE` with the agent's configuration, for its shapes")
	cmd.MarkFlagFilename("config")
	cmd.Flags().StringVarP(&to, "output", "o", "", "`FILE` to replace (default: standard output)")
	cmd.MarkFlagFilename("output")
	return cmd
}
