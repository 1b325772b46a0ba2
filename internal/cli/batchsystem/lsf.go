package batchsystem

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/batch/lsf/setup"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
)

// lsfCommands are the commands for LSF.
type lsfCommands struct{ *app.App }

func (a lsfCommands) lsfCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "lsf", Short: "Set up and check IBM Spectrum LSF for jobs in virtual machines"}
	cmd.AddCommand(a.lsfInstall(), a.lsfCheck(), a.lsfEsub(), a.lsfElim())
	return cmd
}

func (a lsfCommands) lsfInstall() *cobra.Command {
	var s setup.Setup
	var dir string
	cmd := &cobra.Command{
		Use: "install --dir DIR", Short: "Write esub, elim and lines for lsb.queues, lsf.conf and lsf.shared",
		Args: cobra.NoArgs,
		Long: `Write files into DIR: esub.grange and elim.grange, for $LSF_SERVERDIR; and lsb.queues,
lsf.conf, lsf.shared and lsf.cluster, with the lines to add to the site's files. The
configuration of LSF is not changed.`,
		Example: "  grange lsf install --dir /root/grange-lsf --queue vm",
		RunE: func(*cobra.Command, []string) error {
			if len(s.Queues) == 0 {
				return app.Usage("--queue NAME, as often as needed", "no queue: jobs of which queues are to run in VMs?")
			}
			abs, err := filepath.Abs(dir)
			if err != nil {
				return err
			}
			s.Socket = a.Socket
			if s.Grange, err = programOnHosts(a.App, s.Grange, "/"); err != nil {
				return err
			}
			return writeSetup(a.App, abs, s.Files(),
				"docs/guide/lsf.md says where each belongs; then `lsadmin reconfig` and `badmin mbdrestart`, and "+
					"grange lsf check.\n"+
					"The quotes around a job's command line are made by esub, on the submission host, as the user: no "+
					"boundary against who submits past it")
		},
	}
	queueSetupFlags(cmd, &dir, &s.Grange, &s.Queues, &s.Requeues)
	return cmd
}

func (a lsfCommands) lsfEsub() *cobra.Command {
	var queues []string
	cmd := &cobra.Command{
		Use: "esub [flags] -- [IMAGE]", Short: "Check and modify a submission before it is queued (esub.grange)",
		Long: `Read $LSB_SUB_PARM_FILE, and write $LSB_SUB_MODIFY_FILE and $LSB_SUB_MODIFY_ENVFILE, as an
esub does. For jobs of the given queues, the command line is rewritten so that the job
starter passes all of it into the VM. IMAGE, from bsub -a 'grange(IMAGE)', is the image of
the VM.`,
		RunE: func(_ *cobra.Command, args []string) error {
			params, err := os.Open(os.Getenv("LSB_SUB_PARM_FILE"))
			if err != nil {
				return &farm.Error{Kind: farm.Invalid, Code: farm.CodeUsage, Message: "no submission: " + err.Error(),
					Hint: "LSF calls this; it names the file in $LSB_SUB_PARM_FILE"}
			}
			defer params.Close()
			s, err := setup.Esub(params, args, queues)
			if err != nil {
				return err
			}
			for name, lines := range map[string][]string{"LSB_SUB_MODIFY_FILE": s.Modify,
				"LSB_SUB_MODIFY_ENVFILE": s.Env} {
				if len(lines) == 0 {
					continue
				}
				if err := appendLines(os.Getenv(name), lines); err != nil {
					return app.CannotWrite("$"+name, err)
				}
			}
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&queues, "queues", nil, "`QUEUES` whose jobs run in VMs (default: all)")
	return cmd
}

func appendLines(path string, lines []string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(lines, "\n") + "\n")
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

func (a lsfCommands) lsfElim() *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use: "elim", Short: "Report this host's free slots and images to LSF (elim.grange)",
		Args: cobra.NoArgs,
		Long: `Print one line at each interval, in the format that LSF's lim reads: the number of indices,
then the name and value of each. Without an agent, the number of slots is zero.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return setup.Elim(cmd.Context(), a.Out, every, a.load)
		},
	}
	cmd.Flags().DurationVar(&every, "every", 15*time.Second, "interval between reports")
	return cmd
}

// load is what this host has for VMs now.
func (a lsfCommands) load(ctx context.Context) (setup.Load, error) {
	h, err := a.Client().Host(ctx)
	if err != nil {
		return setup.Load{}, err
	}
	free, err := farm.ParseCPUSet(h.Free)
	if err != nil {
		return setup.Load{}, fmt.Errorf("free CPUs: %w", err)
	}
	images, err := a.Client().Images(ctx)
	if err != nil {
		return setup.Load{}, err
	}
	l := setup.Load{Slots: free.Len()}
	for _, i := range images {
		l.Images = append(l.Images, i.Name)
	}
	return l, nil
}
