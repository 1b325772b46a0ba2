package cli

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/batch/program"
	"github.com/grange-project/grange/internal/batch/slurm"
	"github.com/grange-project/grange/internal/config"
)

func (a *app) slurmCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "slurm", Short: "Set up Slurm for jobs in virtual machines, and check it"}
	cmd.AddCommand(a.slurmInstall(), a.slurmCompile(), a.slurmUninstall(), a.slurmCheck(), a.slurmCatalogue(),
		a.slurmProlog(), a.slurmOCI())
	return cmd
}

// slurmPlaces are the flags that install and uninstall share.
func (a *app) slurmPlaces(cmd *cobra.Command, i *slurm.Install) {
	flags := cmd.Flags()
	flags.StringVar(&i.Root, "root", "/", "write below `DIR`, for a package or an image of a host")
	flags.StringVar(&i.ConfDir, "conf-dir", "/etc/slurm", "`DIR` of slurm.conf")
	flags.StringVar(&i.PluginDir, "plugin-dir", pluginDir(), "`DIR` for the plug-in")
	flags.BoolVar(&i.Submit, "submit", false, "a host where people submit and no job runs")
	cmd.MarkFlagDirname("root")
	cmd.MarkFlagDirname("conf-dir")
	cmd.MarkFlagDirname("plugin-dir")
}

func (a *app) slurmInstall() *cobra.Command {
	var i slurm.Install
	var dryRun bool
	cmd := &cobra.Command{
		Use: "install", Short: "Compile the plug-in for this host's Slurm and put it and its prolog in place",
		Long: `Compile the plug-in against the headers of this host's Slurm; write the plug-in, its line in plugstack.conf.d, and a prolog.
The site's own slurm.conf and plugstack.conf are changed with --write only: without it, what they lack is shown as a diff.
Run it again after each upgrade of Slurm; what is there already stays. With --oci it compiles nothing: it writes oci.conf, a prolog and an epilog; see grange slurm oci.`,
		Example: `  grange slurm install --default micro --dry-run
  grange slurm install --default micro --catalogue /etc/slurm/grange-catalogue
  grange slurm install --submit --catalogue /etc/slurm/grange-catalogue
  grange slurm install --oci`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if i.Wrapper == "" {
				self, err := ownPath()
				if err != nil {
					return err
				}
				i.Wrapper = self
			}
			i.Socket = a.socket
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
	flags.StringVar(&i.Include, "include", "", "`DIR` that holds slurm/spank.h")
	flags.StringVar(&i.Wrapper, "wrapper", "", "grange as it lies on hosts (default: this program)")
	flags.StringVar(&i.Checked, "checked", slurm.Checked, "`DIR` where the prolog notes what it has looked at")
	flags.StringVar(&i.Catalogue, "catalogue", "",
		"`FILE` with the images and shapes that sbatch accepts; see grange slurm catalogue")
	flags.StringVar(&i.Default, "default", "",
		"`IMAGE[:SHAPE]` for jobs that name none: no job runs on the host itself then")
	flags.Uint32Var(&i.MinUID, "min-uid", 1000, "users below it get no default")
	flags.BoolVar(&i.Metal, "allow-metal", false, "let --no-vm run a job on the host itself")
	flags.StringVar(&i.Words, "words", slurm.Words, "with --oci: `DIR` where the prolog leaves word for jobs")
	flags.BoolVar(&i.OCI, "oci", false,
		"bundles for --container instead of the plug-in: write oci.conf, a prolog and an epilog, and compile nothing")
	flags.BoolVar(&i.Write, "write", false, "change slurm.conf and plugstack.conf too")
	flags.BoolVar(&dryRun, "dry-run", false, "show what would be done")
	return cmd
}

// pluginDir is beside this program's own directory for programs: packages have theirs below /usr.
func pluginDir() string {
	if self, err := ownPath(); err == nil && filepath.Dir(self) == "/usr/bin" {
		return "/usr/lib/grange"
	}
	return "/usr/local/lib/grange"
}

func (a *app) slurmCompile() *cobra.Command {
	var i slurm.Install
	cmd := &cobra.Command{
		Use: "compile", Short: "Compile the plug-in for this host's Slurm, and change nothing else",
		Long: `Compile the plug-in against the headers of this host's Slurm and put it where plugstack.conf.d/grange.conf names it, or else
into --plugin-dir. No configuration is written. The package grange-slurm runs it when it is installed and after each upgrade of Slurm.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := i.Compile(cmd.Context(), program.Start)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]string{"plugin": file})
			}
			_, err = fmt.Fprintln(a.out, "compiled "+file)
			return err
		},
	}
	a.slurmPlaces(cmd, &i)
	cmd.Flags().StringVar(&i.Include, "include", "", "`DIR` that holds slurm/spank.h")
	return cmd
}

func (a *app) slurmUninstall() *cobra.Command {
	var i slurm.Install
	cmd := &cobra.Command{
		Use: "uninstall", Short: "Remove what install wrote",
		Long: `Remove the plug-in, its line in plugstack.conf.d and the prolog. What install wanted in the site's own slurm.conf and plugstack.conf
is shown as a diff; --write takes it out. A prolog that slurm.conf names stays as a script that does nothing, for Slurm drains a host where it
finds none: after scontrol reconfigure, run this again.`,
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

func (a *app) slurmCheck() *cobra.Command {
	conf, submit := "/etc/slurm/slurm.conf", false
	if env := os.Getenv("SLURM_CONF"); env != "" {
		conf = env
	}
	cmd := &cobra.Command{
		Use: "check", Short: "Say what in this host's configuration of Slurm keeps jobs in VMs from working as on the host",
		Long: `Read slurm.conf, plugstack.conf, cgroup.conf and oci.conf of this host, look at the plug-in and the wrapper, and say what is wrong, why it
matters, and what to do. Nothing is changed. Exit status 1: something is broken, so that no job starts, or one could run outside of a VM.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			site, err := slurm.ReadSite(cmd.Context(), program.Start, conf)
			if err != nil {
				return err
			}
			if c, err := config.ReadAgent(DefaultConfig); err == nil { // a submit host has no agent
				site.ReservedCPUs = c.ReservedCPUs
			}
			findings := slurm.Check(site)
			if submit {
				findings = slurm.SubmitOnly(findings)
			}
			return a.tellFindings(findings)
		},
	}
	cmd.Flags().StringVar(&conf, "conf", conf, "`FILE` to check; the others lie beside it")
	cmd.Flags().BoolVar(&submit, "submit", false, "a host where people submit and no job runs")
	cmd.MarkFlagFilename("conf")
	return cmd
}

func (a *app) slurmCatalogue() *cobra.Command {
	var to, file string
	cmd := &cobra.Command{
		Use: "catalogue", Short: "Write the images and shapes of this host's agent, for sbatch to check --vm against",
		Long: `Write one line for each image and each shape that this host's agent has. Put the file where every submit host sees it, and name it with catalogue=
in plugstack.conf: sbatch then refuses a word that is not in it, before the job waits in the queue.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			images, err := a.client().Images(cmd.Context())
			if err != nil {
				return err
			}
			conf, err := readConfig(file, cmd.Flags().Changed("config"))
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
			if a.json && to == "" {
				return a.printJSON(map[string][]string{"images": names, "shapes": shapes})
			}
			if to == "" {
				_, err := fmt.Fprint(a.out, b.String())
				return err
			}
			return writeFile(to, func(w io.Writer) error {
				_, err := io.WriteString(w, b.String())
				return err
			})
		},
	}
	cmd.Flags().StringVar(&file, "config", DefaultConfig, "the agent's configuration `FILE`, for its shapes")
	cmd.MarkFlagFilename("config")
	cmd.Flags().StringVarP(&to, "output", "o", "", "`FILE` to replace (default: standard output)")
	cmd.MarkFlagFilename("output")
	return cmd
}
