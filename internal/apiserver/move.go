package apiserver

import (
	"cmp"
	"context"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

type moveAnswer = one[fleet.Move]

func answerMove(m farm.Move, err error) (*moveAnswer, error) {
	if err != nil {
		return nil, err
	}
	return oneOf(moveView(m), 0), nil
}

func moveView(m farm.Move) fleet.Move {
	out := fleet.Move{ID: m.ID, VM: m.VM, From: cmp.Or(m.FromName, m.From), To: cmp.Or(m.ToName, m.To), By: m.By,
		Phase: fleet.PhasePreparing, Failure: m.Failure, Total: uint64(m.Source.Total), Done: uint64(m.Source.Done),
		Since: m.Since.UTC(), Ended: timeOrNil(m.Ended)}
	switch {
	case !m.Active() && m.Failure != "":
		out.Phase = fleet.PhaseFailed
	case !m.Active():
		out.Phase = fleet.PhaseDone
	case m.Cancelled:
		out.Phase = fleet.PhaseCancelling
	case m.Source.Phase == fleet.MoveCopying:
		out.Phase = fleet.PhaseCopying
	}
	return out
}

func (a *API) moveRoutes() {
	handle(a, route{method: "POST", path: "/v1/vms/{vm}/move", id: "move-vm", tag: "VMs",
		summary: "Move a virtual machine of a service cell to another host while it runs",
		about:   "Answers when it is ordered; what becomes of it is at the same path."},
		func(ctx context.Context, who farm.Identity, in *struct {
			VMRef
			Seen
			Body *fleet.VMMove
		}) (*moveAnswer, error) {
			to := ""
			if in.Body != nil {
				to = in.Body.To
			}
			return answerMove(a.server.VMs.Move(ctx, who, in.VM, in.seen, to))
		})
	handle(a, route{method: "GET", path: "/v1/vms/{vm}/move", id: "get-vm-move", tag: "VMs",
		summary: "The last move of a virtual machine, and how far it is"},
		func(ctx context.Context, who farm.Identity, in *struct{ VMRef }) (*moveAnswer, error) {
			return answerMove(a.server.VMs.LastMove(ctx, who, in.VM))
		})
	handle(a, route{method: "DELETE", path: "/v1/vms/{vm}/move", id: "cancel-vm-move", tag: "VMs",
		summary: "Cancel a virtual machine's move; it runs on where it is"},
		func(ctx context.Context, who farm.Identity, in *struct {
			VMRef
			Seen
		}) (*moveAnswer, error) {
			return answerMove(a.server.VMs.CancelMove(ctx, who, in.VM, in.seen))
		})
}
