package disks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/disk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lvm"
)

// cleanFlags are those of `grange disk clean`.
type cleanFlags struct {
	config      string
	delete, yes bool
}

// unowned is something on a host that no VM has.
type unowned struct {
	Kind string     `json:"kind"` // "directory", "volume", "profile"
	Path string     `json:"path"`
	Size farm.Bytes `json:"size,omitempty"`
	Why  string     `json:"why"`

	remove func(context.Context) error
}

func (a diskCommands) cleanCommand() *cobra.Command {
	var f cleanFlags
	cmd := &cobra.Command{
		Use: "clean", Args: cobra.NoArgs,
		Short: "List what is left of VMs on this host that nobody owns, and delete it",
		Long: "List what no VM of this host has: directories of disks, volumes that carry the tag grange and are\n" +
			"no agent's of this host, and AppArmor profiles that libvirt wrote. --delete deletes what is listed,\n" +
			"after a question. What the agent itself knows to be left it removes without being asked. The agent\n" +
			"must run: it says which VMs there are. Volumes of another agent that shares the volume group are\n" +
			"listed, too: look at their tags first.",
		Example: "  grange disk clean\n  grange disk clean --delete",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := app.ReadConfig(f.config, cmd.Flags().Changed("config"))
			if err != nil {
				return err
			}
			return a.clean(cmd.Context(), c, f)
		}}
	cmd.Flags().StringVar(&f.config, "config", app.DefaultConfig, "the agent's configuration `FILE`")
	cmd.Flags().BoolVar(&f.delete, "delete", false, "delete what is listed")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

func (a diskCommands) clean(ctx context.Context, c config.Agent, f cleanFlags) error {
	vms, err := a.Client().VMs(ctx) // without the agent nobody knows whose anything is
	if err != nil {
		return err
	}
	has := map[string]bool{}
	for _, v := range vms {
		has[v.Name], has[v.ID] = true, true
	}
	found, err := unownedOf(ctx, c, has)
	if err != nil {
		return err
	}
	if a.JSON {
		if err := a.PrintJSON(found); err != nil {
			return err
		}
	} else if err := a.list(found); err != nil {
		return err
	}
	if !f.delete || len(found) == 0 {
		return nil
	}
	if err := a.ask(ctx, len(found), f.yes); err != nil {
		return err
	}
	var errs []error
	for _, u := range found {
		if err := u.remove(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", u.Path, err))
		}
	}
	return errors.Join(errs...)
}

func (a diskCommands) list(found []unowned) error {
	t := app.Table[unowned]{None: "nothing is left that nobody owns", Head: "KIND\tPATH\tSIZE\tWHY",
		Line: func(u unowned) []any { return []any{u.Kind, u.Path, u.Size.Rounded(), u.Why} }}
	return t.Print(a.App, found)
}

func (a diskCommands) ask(ctx context.Context, n int, yes bool) error {
	if yes {
		return nil
	}
	return a.Confirm(ctx, fmt.Sprintf("delete these %d?", n), "nothing was deleted",
		"see what is listed, then say --yes")
}

// young is what a VM that is being made may have before the agent lists it.
const young = 10 * time.Minute

// unownedOf finds what nobody owns, of what a VM may have left. has are the names and IDs of VMs.
func unownedOf(ctx context.Context, c config.Agent, has map[string]bool) (all []unowned, err error) {
	owners := map[string]bool{}
	for _, dir := range slices.Compact([]string{c.Areas.Jobs.Path, c.Areas.Cloud.Path}) {
		found, err := directories(dir, has)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
		if owner, err := disk.Owner(dir); err == nil {
			owners[owner] = true
		}
	}
	if c.Areas.Jobs.VolumeGroup != "" || c.Areas.Cloud.VolumeGroup != "" {
		found, err := volumes(ctx, new(lvm.LVM), owners)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	found, err := profiles("/etc/apparmor.d/libvirt", has)
	return append(all, found...), err
}

// directories are those of VMs that there are not. One with a record is a cloud VM's that may be started again.
func directories(dir string, has map[string]bool) (all []unowned, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := e.Info()
		if err != nil || !e.IsDir() || has[e.Name()] || time.Since(info.ModTime()) < young ||
			!strings.HasPrefix(e.Name(), "grange-") && !strings.HasPrefix(e.Name(), ".bench-") {
			continue
		}
		if _, err := os.Stat(filepath.Join(path, "wanted.json")); err == nil {
			continue
		}
		all = append(all, unowned{"directory", path, used(path), "the agent has no VM of that name",
			func(context.Context) error { return os.RemoveAll(path) }})
	}
	return all, nil
}

// used is what the files of a directory take.
func used(dir string) (sum farm.Bytes) {
	names, _ := disk.Names(dir)
	for _, name := range names {
		sum += disk.Taken(filepath.Join(dir, name))
	}
	return sum
}

// volumes are those with our tag whose owner is none of this host's.
func volumes(ctx context.Context, l *lvm.LVM, owners map[string]bool) (all []unowned, err error) {
	r, err := l.Read(ctx)
	if err != nil {
		return nil, err
	}
	for _, v := range r.Volumes {
		if owners[v.Owner] || v.Open {
			continue
		}
		all = append(all, unowned{"volume", v.Path(), v.Used, fmt.Sprintf("its owner %q is not this host's agent", v.Owner),
			func(ctx context.Context) error { return l.Remove(ctx, v) }})
	}
	return all, nil
}

// profiles are those that libvirt wrote for VMs that there are not. Only ours are looked at, by their names' UUIDs in
// files that name one of our VMs.
func profiles(dir string, has map[string]bool) (all []unowned, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "libvirt-*.files"))
	for _, path := range paths {
		id := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "libvirt-"), ".files")
		text, err := os.ReadFile(path)
		if err != nil || has[id] || !strings.Contains(string(text), "/grange-") {
			continue
		}
		main := filepath.Join(dir, "libvirt-"+id)
		all = append(all, unowned{"profile", main, 0, "its VM has ended", func(context.Context) error {
			return errors.Join(os.Remove(path), ignoreMissing(os.Remove(main)))
		}})
	}
	return all, err
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
