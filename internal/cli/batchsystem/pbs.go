package batchsystem

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/batch/pbs/setup"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/config"
)

// pbsCommands are the commands for OpenPBS.
type pbsCommands struct{ *app.App }

func (a pbsCommands) pbsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "pbs", Short: "Set up and check OpenPBS for jobs in virtual machines"}
	cmd.AddCommand(a.pbsInstall(), a.pbsCheck())
	return cmd
}

func (a pbsCommands) pbsInstall() *cobra.Command {
	var s setup.Setup
	cmd := &cobra.Command{
		Use:   "install --dir DIR",
		Short: "Write the hook, its configuration and a script that installs them", Args: cobra.NoArgs,
		Long: `Write four files into DIR: launch.py, the hook; grange.json, its configuration; install.sh,
the commands for qmgr; and scp, for PBS_SCP in pbs.conf, which does not read users'
configuration.

PBS is not changed until install.sh is run as root on the server's host. Then, jobs of the
given queues start in virtual machines, on hosts whose hook has reported that grange is
installed. Jobs of other queues are not affected.`,
		Example: "  grange pbs install --dir /root/grange-pbs --queue vm",
		RunE: func(*cobra.Command, []string) error {
			if len(s.Queues) == 0 {
				return app.Usage("--queue NAME, as often as needed", "no queue: jobs of which queues are to run in VMs?")
			}
			abs, err := filepath.Abs(s.Dir)
			if err != nil {
				return err
			}
			s.Dir, s.Socket = abs, a.Socket
			if s.Grange, err = programOnHosts(a.App, s.Grange, "/"); err != nil {
				return err
			}
			conf, err := s.Config()
			if err != nil {
				return err
			}
			return writeSetup(a.App, s.Dir, map[string]string{"launch.py": string(setup.Hook),
				"grange.json": string(conf), "install.sh": s.Script(), setup.StagingName: setup.Staging},
				"run "+filepath.Join(s.Dir, "install.sh")+" on the server's host, as root")
		},
	}
	queueSetupFlags(cmd, &s.Dir, &s.Grange, &s.Queues, &s.Requeues)
	return cmd
}

// programOnHosts is the path that hooks start grange by: where this one lies, if nobody says otherwise. Below root it
// may be another host's.
func programOnHosts(a *app.App, path, root string) (string, error) {
	if path == "" {
		self, err := app.OwnPath()
		if err != nil {
			return "", err
		}
		path = self
	}
	here := filepath.Join(root, path)
	if info, err := os.Stat(here); err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		fmt.Fprintf(a.Err, "grange: warning: %s is not a program here; every job would fail on a host where it is not. "+
			"Install grange there, or name it with --grange\n", here)
	}
	return path, nil
}

// queueSetupFlags are those that the installations of several systems share.
func queueSetupFlags(cmd *cobra.Command, dir, grange *string, queues *[]string, requeues *int) {
	flags := cmd.Flags()
	flags.StringVar(dir, "dir", "", "write the files into `DIR`")
	flags.StringVar(grange, "grange", "", "`PATH` of grange on the hosts (default: this program)")
	flags.StringArrayVar(queues, "queue", nil, "`QUEUE` whose jobs run in VMs (repeatable)")
	flags.IntVar(requeues, "requeues", config.DefaultRequeues,
		"number of times that a job whose VM was not started is queued again")
	cmd.MarkFlagRequired("dir")
}

// writeSetup writes files of an installation. Scripts may be run.
func writeSetup(a *app.App, dir string, files map[string]string, next string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return app.CannotWrite(dir, err)
	}
	var written []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path, text := filepath.Join(dir, name), files[name]
		written = append(written, path)
		if err := app.WriteFile(path, func(w io.Writer) error {
			_,
				err := io.WriteString(w, text)
			return err
		}); err != nil {
			return err
		}
		if len(text) > 2 && text[:2] == "#!" {
			if err := os.Chmod(path, 0o755); err != nil {
				return app.CannotWrite(path, err)
			}
		}
	}
	if a.JSON {
		return a.PrintJSON(map[string]any{"files": written, "next": next})
	}
	fmt.Fprintf(a.Out, "%d files are in %s; %s\n", len(files), dir, next)
	return nil
}
