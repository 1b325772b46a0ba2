package agent

import (
	"context"
	"io"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// Stream opens a stream to a VM of the server: its serial console, or a port of its own address and of no other. The caller closes it.
// Errors: farm.NotFound where the VM does not run here, farm.Invalid, farm.Unavailable where it does not answer.
func (a *Agent) Stream(ctx context.Context, o fleet.StreamOrder) (io.ReadWriteCloser, error) {
	if m, _ := a.fleetMachine(o.VM); m == nil {
		return nil, &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoVM, Message: "VM " + o.VM + " does not run on this host", Hint: "start it, and try again"}
	}
	return nil, badRequest("no stream of kind %q", o.Kind)
}
