package daemon

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pki"
	"github.com/grange-project/grange/internal/server/hostlink"
	"github.com/grange-project/grange/internal/store"
)

// serverCheck finds before a start, and before an upgrade, what would keep the server from it.
func (a serverCommands) serverCheck(f *serverFlags) *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "Check the configuration and the database", Args: cobra.NoArgs,
		Long: `Check the configuration, the files that it names, and the whole database. Each row is read
as the server reads it, and each text must be one that both kinds of database can store.
References between rows are not checked. Nothing is changed, and a server may be running
meanwhile. After an upgrade, the command prints what the server's first start will do to the
tables.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.read(cmd)
			if err != nil {
				return err
			}
			return a.checkServer(cmd.Context(), c, f.config)
		},
	}
}

func (a serverCommands) checkServer(ctx context.Context, c config.Server, path string) error {
	if _, err := newIssuers(c, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	if _, err := newPeople(c, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	for _, path := range []string{c.CA, c.HostCA} {
		if _, err := pki.ReadRoots(path); err != nil {
			return err
		}
	}
	if err := checkKeyPair(c.Certificate, c.Key); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Brokers)) {
		if _, err := openBroker(c.Brokers[name]); err != nil {
			return err
		}
	}
	if !a.JSON {
		if err := printChecked(a.App, path); err != nil {
			return err
		}
	}
	found, err := store.Check(ctx, c.Store)
	if err != nil {
		return err
	}
	warning := ""
	if found.Todo == 0 { // otherwise the tables are another release's
		if warning, err = caWarning(ctx, c.Store); err != nil {
			return err
		}
	}
	if a.JSON {
		return a.PrintJSON(map[string]any{"revision": found.Revision, "vms": found.VMs, "hosts": found.Hosts,
			"objects": found.Objects, "audit": found.Log, "steps": found.Steps, "todo": found.Todo,
			"warnings": slices.DeleteFunc([]string{warning}, func(w string) bool { return w == "" })})
	}
	fmt.Fprintf(a.Out, "%s is sound: %s\n", nameOf(c.Store), found)
	if warning != "" {
		fmt.Fprintln(a.Out, "warning:", warning)
	}
	return nil
}

// caWarning is that the fleet's authority ends soon; "": it does not, or there is none yet.
func caWarning(ctx context.Context, database string) (string, error) {
	text, err := store.ReadSetting(ctx, database, hostlink.AuthoritySetting)
	if farm.IsKind(err, farm.NotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	newest, err := pki.NewestOf(text)
	if err != nil {
		return "", err
	}
	return pki.EndsSoon(newest, time.Now()), nil
}

// checkKeyPair looks whether the server could show a certificate.
func checkKeyPair(certificate, key string) error {
	if certificate == "" {
		return nil
	}
	if _, err := tls.LoadX509KeyPair(certificate, key); err != nil {
		return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadConfig, Message: "certificate: " + certificate,
			Err: err, Hint: "both files are PEM: the server's certificate first, then its chain; and the key of that " +
				"certificate"}
	}
	return nil
}

// nameOf is a database for people: a URL without its password.
func nameOf(url string) string {
	before, rest, ok := strings.Cut(url, "://")
	if user, host, has := strings.Cut(rest, "@"); ok && has {
		user, _, _ = strings.Cut(user, ":")
		return before + "://" + user + "@" + host
	}
	return url
}

func (a serverCommands) serverStatus() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Print statistics of the fleet", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.Fleet()
			if err != nil {
				return err
			}
			defer client.Close()
			status, err := client.Status(cmd.Context())
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(status)
			}
			fmt.Fprintf(a.Out, "server %s, revision %d\n", status.Version.Version, status.Revision)
			for _, line := range []struct {
				what   string
				counts map[string]int
			}{{"hosts", status.Hosts}, {"VMs", status.VMs}, {"agents", status.Versions}} {
				fmt.Fprintf(a.Out, "%-7s %s\n", line.what, counted(line.counts))
			}
			for _, w := range status.Warnings {
				fmt.Fprintln(a.Out, "warning:", w)
			}
			return nil
		},
	}
}

// counted is "3 open, 1 silent", the largest first.
func counted(counts map[string]int) string {
	if len(counts) == 0 {
		return "none"
	}
	names := slices.SortedFunc(maps.Keys(counts),
		func(x, y string) int { return cmp.Or(counts[y]-counts[x], strings.Compare(x, y)) })
	for i, name := range names {
		names[i] = fmt.Sprintf("%d %s", counts[name], cmp.Or(name, "unknown"))
	}
	return strings.Join(names, ", ")
}

func (a serverCommands) serverBackup(f *serverFlags) *cobra.Command {
	var dir string
	var keep int
	cmd := &cobra.Command{
		Use: "backup {FILE | --dir DIR}", Short: "Copy the database to a new file while the server runs",
		Args: cobra.MaximumNArgs(1),
		Long: `Copy the database, of either kind, to a new SQLite file while the server runs. The copy is a
snapshot of one moment. The file appears when it is complete, and never replaces another
file. It contains hashes of tokens, users' data, and the key of the fleet's authority,
sealed with ca_key_file; keep a copy of that key file elsewhere.

With --dir, the file is named by the time, and the oldest backups in the directory are
deleted.`,
		Example: "  sudo -u grange grange server backup /var/lib/grange-server/grange-$(date +%F).db\n  systemctl " +
			"enable --now grange-server-backup.timer",
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 1) == (dir != "") {
				return app.Usage("name a FILE, or a directory with --dir", "one place for the backup is needed")
			}
			if keep < 1 || dir == "" && cmd.Flags().Changed("keep") {
				return app.Usage("--dir DIR --keep 14",
					"--keep is a number from 1, of the backups in the directory of --dir")
			}
			c, err := f.read(cmd)
			if err != nil {
				return err
			}
			if dir != "" {
				return a.rotateBackups(cmd.Context(), c.Store, dir, keep)
			}
			copied, err := store.Backup(cmd.Context(), c.Store, args[0])
			return a.printCopied(copied, err, args[0])
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "`DIR` of the backups, instead of FILE")
	cmd.Flags().IntVar(&keep, "keep", 14, "number of `BACKUPS` to keep in the directory")
	return cmd
}

func (a serverCommands) rotateBackups(ctx context.Context, from, dir string, keep int) error {
	file, copied, deleted, err := store.Rotate(ctx, from, dir, keep, time.Now())
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(map[string]any{"file": file, "rows": copied.Rows, "revision": copied.Revision,
			"deleted": slices.Concat([]string{}, deleted)})
	}
	if err := a.printCopied(copied, nil, file); err != nil {
		return err
	}
	for _, name := range deleted {
		fmt.Fprintf(a.Out, "%s deleted\n", filepath.Join(dir, name))
	}
	return nil
}

func (a serverCommands) serverRestore(f *serverFlags) *cobra.Command {
	return &cobra.Command{
		Use: "restore FILE", Short: "Restore a backup into an empty database", Args: cobra.ExactArgs(1),
		Long: `Restore a backup into the configured database, or into that of --store, which must be empty.
Stop all servers first. The restored server has no record of what was done after the backup:
VMs created since then continue to run, their hosts report them, and nothing is done to
them.`,
		Example: "  systemctl stop grange-server\n  mkdir broken && mv server.db* broken/\n  grange server restore " +
			"grange-2026-11-21.db\n  systemctl start grange-server",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.read(cmd)
			if err != nil {
				return err
			}
			copied, err := store.Restore(cmd.Context(), args[0], c.Store)
			return a.printCopied(copied, err, nameOf(c.Store))
		},
	}
}

func (a serverCommands) storeCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "store", Short: "Copy the database of a fleet"}
	var from, to string
	move := &cobra.Command{
		Use: "copy", Short: "Copy a database into an empty one, of either kind", Args: cobra.NoArgs,
		Long: `Copy a database into an empty one, of the same or the other kind: from SQLite to PostgreSQL
when you add a second server, or back. Stop the servers first: what they write during the
copy is not included.`,
		Example: "  grange store copy --from /var/lib/grange-server/server.db --to postgres:///grange",
		RunE: func(cmd *cobra.Command, _ []string) error {
			copied, err := store.Copy(cmd.Context(), from, to)
			return a.printCopied(copied, err, nameOf(to))
		},
	}
	move.Flags().StringVar(&from, "from", "", "source database: a `FILE`, or postgres://USER@HOST/DATABASE")
	move.Flags().StringVar(&to, "to", "",
		"target database, empty: a `FILE` that does not exist, or postgres://USER@HOST/DATABASE")
	for _, name := range []string{"from", "to"} {
		if err := move.MarkFlagRequired(name); err != nil {
			panic(err) // the flag is declared above
		}
	}
	cmd.AddCommand(move)
	return cmd
}

func (a serverCommands) printCopied(copied store.Copied, err error, to string) error {
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(map[string]any{"rows": copied.Rows, "revision": copied.Revision})
	}
	_, err = fmt.Fprintf(a.Out, "%s copied to %s, up to revision %d\n", farm.Count(copied.Rows, "row"), to,
		copied.Revision)
	return err
}
