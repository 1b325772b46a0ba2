package transfer

import (
	"context"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/chunk"
	"github.com/grange-project/grange/internal/farm"
)

// Report is what a host says of itself to the server.
func (f *Fetcher) Report(address string) fleet.TransferReport {
	r := fleet.TransferReport{Address: address}
	for _, digest := range f.Holds() {
		r.Holds = append(r.Holds, digest.String())
	}
	for _, digest := range f.Wanted() {
		r.Wants = append(r.Wants, digest.String())
	}
	return r
}

// LocateBy returns an Options.Locate that asks a server, which is told all that this host holds and wants.
func LocateBy(ask func(context.Context) (fleet.TransferAnswer, error)) func(context.Context, chunk.Sum) (Location,
	error) {
	return func(ctx context.Context, digest chunk.Sum) (l Location, err error) {
		a, err := ask(ctx)
		if err != nil {
			return l, err
		}
		for _, t := range a.Transfers {
			if t.Digest == digest.String() {
				return locationOf(t, time.Duration(a.Next*float64(time.Second)))
			}
		}
		return l, errUnknown(digest)
	}
}

// locationOf reads what a server says of a file.
func locationOf(t fleet.Transfer, next time.Duration) (l Location, err error) {
	switch {
	case t.Missing:
		return l, &farm.Error{Kind: farm.NotFound, Code: CodeUnknown, Message: t.Problem,
			Hint: "see whether the server still has it: `grange image list`"}
	case t.Problem != "":
		return l, &farm.Error{Kind: farm.Unavailable, Code: CodeUnknown, Message: t.Problem,
			Hint: "the server's log says more"}
	case t.Index != "":
		if l.Index, err = chunk.ParseSum(t.Index); err != nil {
			return l, err
		}
	}
	l.Next = next
	for _, p := range t.Peers {
		l.Peers = append(l.Peers, Peer(p))
	}
	return l, nil
}
