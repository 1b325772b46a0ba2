package batchsystem

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/slurm"
	"github.com/grange-project/grange/internal/batch/slurm/setup"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/job"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// ociCommands are the commands that run Slurm's containers in VMs.
type ociCommands struct{ *app.App }

func (a ociCommands) slurmOCI() *cobra.Command {
	cmd := &cobra.Command{Use: "oci",
		Short: "Run Slurm jobs in VMs with --container instead of the plug-in",
		Long: "Slurm starts jobs with --container=BUNDLE through the programs that are set in oci.conf.\n" +
			"`grange slurm install --oci` sets them to grange. A bundle, which `grange slurm oci bundle`\n" +
			"writes, stands for an image: sbatch --container=/srv/vm/el9 job.sh runs the job in a VM of\n" +
			"that image."}
	cmd.AddCommand(a.ociBundle(), a.ociRun(), a.ociProlog(),
		ociCommand("state ID", "Report to Slurm that a container has ended", a.ociState),
		ociCommand("kill ID", "Do nothing: Slurm has already ended the processes", nil),
		ociCommand("delete ID", "Do nothing: nothing is left to delete", nil))
	return cmd
}

func (a ociCommands) ociBundle() *cobra.Command {
	var dir, shape string
	cmd := &cobra.Command{
		Use: "bundle IMAGE --dir DIR", Short: "Write a bundle that stands for an image",
		Long: `Write a directory for the --container=DIR option of sbatch, srun and salloc. It contains a
config.json, which names the image and a shape in annotations, and no file of the image. The
directory must exist under the same path on every host that runs jobs; a shared directory is
suitable.

The image @policy stands for the image that the agent's policy selects. Anyone can write a
bundle: it gives no access beyond what the agent would grant.`,
		Example: `  grange slurm oci bundle el9 --dir /srv/vm/el9
  grange slurm oci bundle el9 --shape large --dir /srv/vm/el9-large`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.CompleteImages,
		RunE: func(_ *cobra.Command, args []string) error {
			if dir == "" {
				return app.Usage("grange slurm oci bundle IMAGE --dir DIR", "--dir is missing")
			}
			text, err := slurm.Bundle(args[0], shape)
			if err != nil {
				return err
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			return app.WriteFile(filepath.Join(dir, "config.json"), func(w io.Writer) error {
				_, err := w.Write(text)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "`DIR` to write, created if it does not exist")
	cmd.Flags().StringVar(&shape, "shape", "", "`SHAPE` from the agents' configuration")
	cmd.MarkFlagDirname("dir")
	return cmd
}

// ociRun is what Slurm starts in a task's place, as the job's user, in its control groups and limits. In its
// environment there is nothing of the user's: that is in the bundle, as Slurm wrote it anew.
func (a ociCommands) ociRun() *cobra.Command {
	var words string
	cmd := &cobra.Command{Use: "run BUNDLE JOB TASK", Short: "Run a task of a Slurm job in its virtual machine",
		Args: cobra.ExactArgs(3), Hidden: true, RunE: func(cmd *cobra.Command, args []string) error {
			a.SiteSocket(cmd)
			c, err := ociJob(words, args[0], args[1], args[2])
			if err != nil {
				app.PrintError(a.Err, err)
				return app.ExitError{Status: batch.ExitNever}
			}
			return job.ExecInPlace(cmd.Context(), a.App, farm.Slurm, c.Image, c.Shape, c.Args)
		}}
	cmd.Flags().StringVar(&words, "words", slurm.Words, "`DIR` in which the prolog leaves messages")
	return cmd
}

// ociJob makes this process what it would be had Slurm started it as a task on the host, and says what is to run.
func ociJob(words, bundle, job, task string) (slurm.Container, error) {
	if os.Getuid() == 0 {
		return slurm.Container{}, &farm.Error{Kind: farm.Denied, Code: farm.CodeBadBundle,
			Message: "root's jobs get no virtual machine", Hint: "submit as the user whose job it is"}
	}
	c, err := slurm.ReadContainer(bundle)
	if err != nil {
		return slurm.Container{}, err
	}
	word, err := slurm.ReadWord(words, job)
	if err != nil {
		return slurm.Container{}, err
	}
	env := c.Environment(word, task, os.Getenv)
	os.Clearenv()
	for _, kv := range env {
		if key, value, _ := strings.Cut(kv, "="); key != "" {
			if err := os.Setenv(key, value); err != nil {
				return slurm.Container{}, fmt.Errorf("environment of the job: %q: %w", key, err)
			}
		}
	}
	if err := os.Chdir(word.Dir); err != nil { // as Slurm does on the host
		if err := os.Chdir("/tmp"); err != nil {
			return slurm.Container{}, err
		}
	}
	return c, nil
}

// ociProlog is where the prolog goes that does not let a job pass.
func (a ociCommands) ociProlog() *cobra.Command {
	p := setup.Prolog{Getenv: os.Getenv, Run: program.Start}
	cmd := &cobra.Command{Use: "prolog",
		Short: "Refuse jobs if Slurm would run --container on the host itself", Args: cobra.NoArgs,
		Hidden: true, RunE: func(cmd *cobra.Command, _ []string) error { return p.CheckOCI(cmd.Context()) }}
	cmd.Flags().StringVar(&p.Conf, "conf", "/etc/slurm/"+setup.OCIName, "`FILE` that the prolog takes as oci.conf")
	return cmd
}

// ociCommand is one that Slurm runs as root when a step has ended. The container of a task is the task's own process,
// and the agent ends the VM with it: so all has ended by then.
func ociCommand(use, short string, run func(id string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1), Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if run == nil {
				return nil
			}
			return run(args[0])
		}}
}

// ociState prints a state of the OCI's runtime specification: Slurm wants to read "stopped" there.
func (a ociCommands) ociState(id string) error {
	return output.NewJSON(a.Out).Encode(struct {
		OCIVersion string `json:"ociVersion"`
		ID         string `json:"id"`
		Status     string `json:"status"`
		PID        int    `json:"pid"`
		Bundle     string `json:"bundle"`
	}{"1.0.0", id, "stopped", 0, "/"})
}
