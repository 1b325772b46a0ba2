package ledger

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

// booked is the bandwidth of all that has a grant and counts.
func (b *claims) booked(counts func(id string) bool) (sum farm.Bandwidth) {
	for id := range b.grants {
		if counts(id) {
			sum = sum.Plus(b.charges[id].Bandwidth)
		}
	}
	return sum
}

// carried refuses a bandwidth that the host's network does not carry beside what the others have booked.
func (l *Ledger) carried(id string, want farm.Bandwidth) error {
	if want == (farm.Bandwidth{}) || l.host.Bandwidth == nil {
		return nil
	}
	carries := l.host.Bandwidth()
	if !want.Fits(carries, farm.Bandwidth{}) {
		return &farm.Error{Kind: farm.Invalid, Code: farm.CodeTooBig,
			Message: fmt.Sprintf("this host's network carries %vbit/s each way, as far as it is known; %vbit/s in and "+
				"%vbit/s out are asked for", carries, want.In, want.Out),
			Hint: "ask for less; [network] bandwidth in the agent's configuration says what the network carries"}
	}
	booked := l.claims.booked(func(other string) bool { return other != id })
	if !want.Fits(carries, booked) {
		return &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeNoRoom,
			Message: fmt.Sprintf("%vbit/s in and %vbit/s out of the %vbit/s of this host's network are booked; "+
				"%vbit/s in and %vbit/s out are asked for", booked.In, booked.Out, carries, want.In, want.Out),
			Hint: noRoomHint}
	}
	return nil
}

// Booked returns the bandwidth of all that the server did not place, and of its VMs that are unlisted, as Taken does.
func (l *Ledger) Booked(unlisted map[string]bool) farm.Bandwidth {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.claims.booked(func(id string) bool { return !l.claims.cloud[id] || unlisted[id] })
}
