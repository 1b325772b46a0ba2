package agent

import (
	"context"

	"github.com/grange-project/grange/api/fleet"
)

// Recovered is closed once the agent knows what is on its host. Before that Observed would leave out VMs that are there, so nobody may
// report it.
func (a *Agent) Recovered() <-chan struct{} { return make(chan struct{}) }

// Want takes over what the server wants of this host. It is level, not edge, and returns at once; the same list twice does nothing. A VM that
// is here and not in the list is left alone.
func (a *Agent) Want(list fleet.WantedList) {}

// Observed is how the server's VMs are: all that are here, and those wanted deleted of which nothing is left. changed is closed at the next
// change of them, or of Facts.
func (a *Agent) Observed() (vms []fleet.Observed, changed <-chan struct{}) { return nil, nil }

// Facts are what this host says of itself. They are read every few seconds, not at each call. The error is ctx's, while the agent does not
// know its host yet.
func (a *Agent) Facts(ctx context.Context) (fleet.Facts, error) { return fleet.Facts{}, ctx.Err() }
