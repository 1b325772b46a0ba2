package vm

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
)

func (a vmCommands) vmMove() *cobra.Command {
	var project, to string
	var cancel bool
	var w waitFlags
	cmd := &cobra.Command{
		Use: "move VM", Short: "Move a running VM of a service cell to another host",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeFleetVMs,
		Long: `Move a virtual machine of a service cell to another host while it runs, with its memory and
its disks. The guest pauses for a moment. A VM that cannot be moved is refused, with the
reason; if a move fails, the VM stays where it was. VMs of other cells are compute VMs,
which are replaced and not moved.`,
		Example: "  grange vm move web/db-1\n  grange vm move web/db-1 --to node-7 --wait\n  grange vm move web/db-1 " +
			"--cancel",
		RunE: func(cmd *cobra.Command, args []string) error {
			if cancel && to != "" {
				return app.Usage("--to or --cancel", "a move is either ordered or cancelled")
			}
			return a.moveVM(cmd.Context(), args[0], project, to, cancel, w)
		}}
	projectFlag(cmd, &project)
	cmd.Flags().StringVar(&to, "to", "", "target `HOST` (default: the best host of the cell that accepts the VM)")
	cmd.Flags().BoolVar(&cancel, "cancel", false, "cancel the move in progress; the VM stays on its host")
	w.register(cmd, "the move has ended")
	if err := cmd.RegisterFlagCompletionFunc("to", a.CompleteHosts); err != nil {
		panic(err)
	}
	return cmd
}

func (a vmCommands) moveVM(ctx context.Context, ref, project, to string, cancel bool, w waitFlags) error {
	c, err := a.Fleet()
	if err != nil {
		return err
	}
	vm, err := findVM(ctx, c, ref, project)
	if err != nil {
		return err
	}
	var m fleet.Move
	if cancel {
		m, err = c.VMs.CancelMove(ctx, vm.ID)
	} else {
		m, err = c.VMs.Move(ctx, vm.ID, fleet.VMMove{To: to})
	}
	if err != nil {
		return err
	}
	if !a.JSON && cancel {
		fmt.Fprintf(a.Out, "the move of %s from host %s to host %s is to end\n", fullName(vm), m.From, m.To)
	} else if !a.JSON {
		fmt.Fprintf(a.Out, "%s is to move from host %s to host %s\n", fullName(vm), m.From, m.To)
	}
	if w.wait {
		m, err = a.awaitMove(ctx, c, vm, m, w.timeout)
	}
	if a.JSON && m.ID != "" {
		if err := a.PrintJSON(m); err != nil {
			return err
		}
	}
	switch {
	case err != nil:
		return err
	case cancel && w.wait && m.Phase == fleet.PhaseDone:
		return &farm.Error{Kind: farm.Conflict, Code: farm.CodeNoMove,
			Message: fmt.Sprintf("%s had gone to host %s before", fullName(vm), m.To), Hint: "move it back"}
	case !cancel && m.Phase == fleet.PhaseFailed:
		return &farm.Error{Kind: farm.Unavailable, Code: farm.CodeMoveFailed,
			Message: fmt.Sprintf("%s runs on, on host %s: %s", fullName(vm), m.From, m.Failure),
			Hint:    "mend that, and order the move again"}
	}
	if w.wait && !a.JSON && !cancel {
		fmt.Fprintf(a.Out, "%s runs on host %s\n", fullName(vm), m.To)
	}
	return nil
}

// moveLook is the pause between looks at a move: hosts report its progress about as often.
const moveLook = time.Second

// awaitMove returns how a move goes until it has ended. Another one that follows it is not waited for.
func (a vmCommands) awaitMove(ctx context.Context, c *fleet.Client, vm fleet.VM, m fleet.Move,
	timeout time.Duration) (fleet.Move, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	told := ""
	for m.Ended == nil {
		if text := moveText(m); text != told && !a.JSON {
			told = text
			fmt.Fprintf(a.Err, "%s: %s\n", fullName(vm), text)
		}
		select {
		case <-time.After(moveLook):
		case <-ctx.Done():
			return m, &farm.Error{Kind: farm.Unavailable, Code: CodeNotInTime,
				Message: fmt.Sprintf("the move of %s goes on (%s)", fullName(vm), moveText(m)),
				Hint:    "`grange vm move --cancel` ends it", Err: ctx.Err()}
		}
		now, err := c.VMs.LastMove(ctx, vm.ID)
		if err != nil && ctx.Err() == nil {
			return m, err
		} else if err == nil && now.ID == m.ID {
			m = now
		}
	}
	return m, nil
}

// moveText returns how far a move is.
func moveText(m fleet.Move) string {
	switch {
	case m.Phase == fleet.PhasePreparing:
		return "host " + m.To + " makes room"
	case m.Phase == fleet.PhaseCopying && m.Total > 0:
		return fmt.Sprintf("%s of %s copied", farm.Bytes(m.Done).Rounded(), farm.Bytes(m.Total).Rounded())
	}
	return m.Phase
}
