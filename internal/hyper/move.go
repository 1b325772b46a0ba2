package hyper

import (
	"context"

	"github.com/grange-project/grange/internal/farm"
)

// Mover moves a machine to another host while it runs. Each side is driven by its own agent, and what a call returns is
// carried to the other side by the agents; no hypervisor reaches another. The order of calls, S at the source and T at
// the target:
//
//	S Describe, T Fit, S BeginMove, T Await, S Send, T Arrive; then S Stop and T Resume, or T Stop and S CancelMove
//
// The machine runs at the source until Send is about to return. From then on it is stopped on both sides, and exactly
// one of them may let it run: deciding which is the agents', and no call here does.
type Mover interface {
	// Describe returns all of a machine that its guest can see.
	Describe(ctx context.Context, id string) ([]byte, error)
	// Fit returns how the machine has to be made on this host so that its guest notices nothing. Of the description it
	// uses nothing but what a guest sees: everything that reaches the host is m's. Errors: CodeCPU, CodeDevices.
	Fit(ctx context.Context, m Machine, description []byte) (fitted []byte, err error)
	// BeginMove checks at the source that the fitted machine is the same one to its guest.
	BeginMove(ctx context.Context, id string, fitted []byte) (cookie []byte, err error)
	// Await makes the machine with stopped vCPUs. It listens on the sockets for what Send brings. When it fails nothing
	// is left.
	Await(ctx context.Context, m Machine, fitted, cookie []byte, at MoveSockets) (applied Applied,
		answer []byte, err error)
	// Send copies memory and disks to whoever listens on the sockets, while the guest runs; then stops it. When ctx
	// ends, or the copy fails, the machine may be stopped: CancelMove has it run on.
	Send(ctx context.Context, id string, cookie []byte, at MoveSockets) (answer []byte, err error)
	// MoveProgress reports how far Send is. It fails where no Send is under way.
	MoveProgress(ctx context.Context, id string) (MoveProgress, error)
	// Arrive makes the machine whole at the target. Its vCPUs are stopped.
	Arrive(ctx context.Context, m Machine, cookie []byte) error
	// CancelMove has the machine run on at the source, at whatever step its move is, and whoever began it. It does no
	// harm to one that runs.
	CancelMove(ctx context.Context, id string) error
}

// MoveSockets are the unix sockets through which a machine moves: each hypervisor has its own, and the agents carry the
// bytes. One connection is made for the memory, and as many as it likes for disks.
type MoveSockets struct {
	Memory, Disks string
}

// MoveProgress is how far the copy of a machine is. The guest goes on writing, so the total may grow.
type MoveProgress struct {
	Total, Done farm.Bytes
}

// Errors of moves.
const (
	CodeCPU     farm.Code = "move-cpu"     // this host's processor cannot do what the machine's guest was shown
	CodeDevices farm.Code = "move-devices" // this host cannot make the machine as its guest sees it
)
