package host

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
)

// orphansFlags are those of `grange host remove-orphans`.
type orphansFlags struct{ all, yes bool }

func (a hostCommands) hostRemoveOrphans() *cobra.Command {
	var f orphansFlags
	cmd := &cobra.Command{Use: "remove-orphans HOST {VM... | --all}",
		Short: "Delete VMs of a host that the server has no record of", Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeOrphans,
		Long: "Delete orphans: VMs on a host that the server has no record of, with their disks. These are\n" +
			"VMs that were deleted or re-created elsewhere while the host was disconnected, or that were\n" +
			"created after the backup from which the server was restored. `grange host show HOST` lists\n" +
			"them. Orphans are kept until you delete them with this command, which lists the VMs and asks\n" +
			"for confirmation.",
		Example: "  grange host remove-orphans wn-17 atlas/web-1\n  grange host remove-orphans wn-17 --all --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.removeOrphans(cmd.Context(), args[0], args[1:], f)
		}}
	cmd.Flags().BoolVar(&f.all, "all", false, "delete all orphans of the host")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

// hostEvict is what remove-orphans was called before: it does not ask.
func (a hostCommands) hostEvict() *cobra.Command {
	f := orphansFlags{yes: true}
	cmd := &cobra.Command{Use: "evict HOST {VM... | --all}", Hidden: true, Args: cobra.MinimumNArgs(1),
		Deprecated:        "it is called `grange host remove-orphans` now, and asks first",
		ValidArgsFunction: a.completeOrphans,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.removeOrphans(cmd.Context(), args[0], args[1:], f)
		}}
	cmd.Flags().BoolVar(&f.all, "all", false, "all of them")
	return cmd
}

func (a hostCommands) removeOrphans(ctx context.Context, host string, vms []string, f orphansFlags) error {
	if f.all == (len(vms) > 0) {
		return app.Usage("grange host remove-orphans HOST VM..., or grange host remove-orphans HOST --all",
			"which VMs is not said, or twice")
	}
	c, err := a.Fleet()
	if err != nil {
		return err
	}
	h, err := c.Hosts.Get(ctx, host)
	if err != nil {
		return err
	}
	orphans, err := orphansOf(h, vms)
	if err != nil {
		return err
	}
	if len(orphans) == 0 {
		_, err := fmt.Fprintf(a.Err, "the server knows all VMs of host %s\n", host)
		return err
	}
	if err := a.askForOrphans(ctx, orphans, f); err != nil {
		return err
	}
	ids := make([]string, len(orphans))
	for i, o := range orphans {
		ids[i] = o.ID
	}
	if h, err = c.Hosts.EvictVMs(ctx, host, ids); err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(h)
	}
	for _, s := range h.Orphans {
		fmt.Fprintln(a.Out, orphanText(h, s))
	}
	return nil
}

// orphansOf are the orphans of a host that are named by ID or name; without names all of them.
func orphansOf(h fleet.Host, names []string) ([]fleet.Orphan, error) {
	if len(names) == 0 {
		return h.Orphans, nil
	}
	var found []fleet.Orphan
	for _, name := range names {
		is := func(s fleet.Orphan) bool { return s.ID == name || s.Name == name }
		i := slices.IndexFunc(h.Orphans, is)
		if i < 0 {
			return nil, &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoVM,
				Message: fmt.Sprintf("host %s has no orphan %q", h.Name, name),
				Hint:    "`grange host show " + h.Name + "` lists them"}
		}
		for _, s := range h.Orphans[i:] { // a name may be that of several
			if is(s) && !slices.Contains(found, s) {
				found = append(found, s)
			}
		}
	}
	return found, nil
}

// askForOrphans shows what would be deleted, and gets a yes.
func (a hostCommands) askForOrphans(ctx context.Context, orphans []fleet.Orphan, f orphansFlags) error {
	if f.yes {
		return nil
	}
	for _, o := range orphans {
		fmt.Fprintf(a.Err, "%s %s, %s\n", output.Visible(o.Name), output.Visible(o.ID), o.State)
	}
	question := fmt.Sprintf("delete %d VMs and their disks, which are nowhere else?", len(orphans))
	return a.Confirm(ctx, question, "nothing was deleted", "see what is listed, then say --yes")
}

// orphanText is an orphan, and what may be done.
func orphanText(h fleet.Host, s fleet.Orphan) string {
	text := strings.TrimSpace(output.Visible(s.Name)+" "+output.Visible(s.ID)) + ", " + s.State
	if s.Evicted {
		return text + "; the host is to delete it"
	}
	return fmt.Sprintf("%s; `grange host remove-orphans %s %s` deletes it", text, h.Name, output.Visible(s.ID))
}

// completeOrphans offers hosts, then the orphans of one.
func (a hostCommands) completeOrphans(cmd *cobra.Command, args []string, typed string) ([]string,
	cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.CompleteHosts(cmd, args, typed)
	}
	c, err := a.Fleet()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 3*time.Second)
	defer cancel()
	h, err := c.Hosts.Get(ctx, args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	for _, s := range h.Orphans {
		if strings.HasPrefix(s.ID, typed) && !s.Evicted {
			ids = append(ids, s.ID+"\t"+output.Visible(s.Name))
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
