package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
)

// watchCommands are the commands that print changes as they happen.
type watchCommands struct{ *app.App }

func (a watchCommands) watchCommand() *cobra.Command {
	var kinds []string
	cmd := &cobra.Command{Use: "watch", Short: "Print changes in the fleet as they happen", Args: cobra.NoArgs,
		Long: `Print a line for each change that you are permitted to see, until the command is
interrupted. VMs, hosts and cells are printed with their current state, other objects by
name. With --json, each line is a change as the API returns it. If the server becomes
unavailable, the command waits for it and then continues; no change is lost.`,
		Example: "  grange watch --kind vm,host",
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, _ []string) error {
			for _, kind := range kinds {
				if !slices.Contains(watchedKinds(), kind) {
					return app.Usage("there are "+strings.Join(watchedKinds(), ", "),
						"invalid kind of object %q", kind)
				}
			}
			after, err := c.Revision(ctx)
			if err != nil {
				return err
			}
			for {
				var failed error
				err := c.Watch(ctx, kinds, after, func(change fleet.Change) error {
					after, failed = max(after, change.Revision), a.printChange(change)
					return failed
				})
				if refused := new(api.Problem); failed != nil || errors.As(err, &refused) {
					return err
				}
				select { // the server may be another one in a moment
				case <-time.After(time.Second):
				case <-ctx.Done():
					return app.ExitError{Status: app.ExitFailed} // by a signal: nothing need be said
				}
			}
		})}
	cmd.Flags().StringSliceVar(&kinds, "kind", nil,
		"print only changes of these `KINDS`: "+strings.Join(watchedKinds(), ", "))
	app.Complete(cmd, "kind", watchedKinds)
	return cmd
}

func watchedKinds() []string {
	return []string{"vm", "host", "cell", "project", "shape", "network", "group"}
}

func (a watchCommands) printChange(change fleet.Change) error {
	if a.JSON {
		return output.NewJSON(a.Out).Encode(change)
	}
	what, err := changed(change)
	if err == nil {
		_, err = fmt.Fprintf(a.Out, "%d  %s %s\n", change.Revision, change.Kind, output.Visible(what))
	}
	return err
}

// changed is a thing as it is after a change.
func changed(change fleet.Change) (string, error) {
	switch {
	case change.Deleted:
		return change.ID + " is gone", nil
	case change.Object == nil:
		return change.ID, nil
	case change.Kind == "vm":
		v, err := change.VM()
		text := fullName(v) + " " + stateOf(v)
		if v.Host != "" {
			text += " on " + v.Host
		}
		if v.Notice != "" {
			text += ": " + v.Notice
		}
		return text, err
	case change.Kind == "host":
		var h fleet.Host
		err := json.Unmarshal(change.Object, &h)
		return h.Name + " " + h.State, err
	case change.Kind == "cell":
		var v fleet.Cell
		err := json.Unmarshal(change.Object, &v)
		return v.Name + " " + app.CellState(v), err
	}
	return change.ID, nil
}
