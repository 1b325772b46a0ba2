package cloud

import (
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// A VM moves from its source to a target while it runs. Which of the two may run it is the source's record to say, and
// nothing else:
//
//   - The source writes MoveCopying before anything is stopped. Whoever reads that later, with no move under way, has
//     the VM run on here.
//   - Once all of it is at the target, proven there and stopped on both sides, the source writes MoveGone, and lets the
//     VM run here never again.
//   - The target runs nothing that comes before it has the source's word that it has gone: over the connection of the
//     move, over one that the source makes later, or by the server, which has it from the source's reports.
//
// So a kill of anything at any time leaves the VM with exactly one of the two, and lasts no longer than until the
// source is back.

// moveOut is the last move from here.
type moveOut struct {
	ID         string
	Host, Name string // of the target
	Address    string
	Phase      string // fleet.MoveCopying, MoveGone, MoveFailed
	Reason     string // of MoveFailed
	Told       bool   // the target has the VM
}

// moveIn is a VM that comes here. As long as a record has one, the VM is not this host's to start.
type moveIn struct {
	ID         string
	Host, Name string // of the source
	Phase      string
	Reason     string // of inFailed
}

// Phases of a VM that comes.
const (
	inWaits  = ""
	inWhole  = "whole"  // all of it is here and proven, and nothing runs: the source decides
	inCome   = "come"   // the source has given it away: it is this host's, and is about to run
	inFailed = "failed" // this host cannot have it
)

// nextMove is what a move has to do next, before all else but a deletion. ok is false where moves leave the VM alone.
// It is pure.
func (r record) nextMove(running bool) (step step, ok bool) {
	o := r.Wanted.Move
	switch {
	case r.gone() && o != nil && o.Come && o.ID != r.Out.ID:
		return stepDelete, true // it comes back: what is here is of before
	case r.gone() && (running || !r.Out.Told):
		return stepLeave, true
	case r.gone():
		return stepNone, true
	case r.Out != nil && r.Out.Phase == fleet.MoveCopying:
		return stepUnmove, true
	case r.In != nil && r.In.Phase == inFailed && (o == nil || o.ID == r.In.ID):
		return stepNone, true
	case r.In != nil, o != nil && o.Come && o.ID != r.Came:
		return stepReceive, true
	case o == nil || o.Come || r.Out != nil && r.Out.ID == o.ID:
		return stepNone, false
	case o.Cancel, !running, o.Address != "":
		return stepSend, true
	}
	return stepNone, false
}

// gone reports whether the VM was given away.
func (r record) gone() bool { return r.Out != nil && r.Out.Phase == fleet.MoveGone }

// moveSide is what is reported of the VM's last move; nil: it had none. The VM is locked.
func (v *VM) moveSide() *fleet.MoveSide {
	r := v.record
	switch {
	case r.Out != nil:
		s := &fleet.MoveSide{ID: r.Out.ID, Phase: r.Out.Phase, Reason: r.Out.Reason, Host: r.Out.Host}
		if s.Phase == fleet.MoveCopying {
			s.Total, s.Done = uint64(v.departure.progress.Total), uint64(v.departure.progress.Done)
		}
		return s
	case r.In != nil && r.In.Phase == inFailed:
		return &fleet.MoveSide{ID: r.In.ID, Phase: fleet.MoveFailed, Reason: r.In.Reason, Host: r.In.Host}
	case r.In != nil:
		return &fleet.MoveSide{ID: r.In.ID, Phase: fleet.MoveWaiting, Address: v.arrival.waitsAt, Host: r.In.Host}
	case r.Came != "":
		return &fleet.MoveSide{ID: r.Came, Phase: fleet.MoveCome, Host: r.From}
	}
	return nil
}

// badMove is an error of one move, which its VM survives.
func badMove(err error, message, hint string) error {
	return &farm.Error{Kind: farm.Unavailable, Code: farm.CodeMoveFailed, Message: message, Hint: hint, Err: err}
}
