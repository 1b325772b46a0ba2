// Package uplink is a host's side of the link to the server: it joins, keeps its certificate young, brings the wanted list, reports, and
// opens streams. It knows the host through an interface, and decides nothing about VMs.
package uplink

import (
	"context"
	"io"

	"github.com/grange-project/grange/api/fleet"
)

// Host is what a link needs of the host it speaks for.
type Host interface {
	// Facts are what the host says of itself.
	Facts(ctx context.Context) (fleet.Facts, error)
	// Want takes over what the server wants. Level, not edge: it returns at once, and the same list twice does nothing. When it has
	// returned, Observed has every VM of the list that the host will do anything about.
	Want(list fleet.WantedList)
	// Observed is every VM of the server that is here, and those wanted deleted that are gone; changed is closed at the next change of
	// these or of Facts.
	Observed() (vms []fleet.Observed, changed <-chan struct{})
	// Stream opens a stream to a VM. The caller closes it.
	Stream(ctx context.Context, o fleet.StreamOrder) (io.ReadWriteCloser, error)
}
