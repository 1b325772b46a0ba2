package agent

import (
	"context"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/breaker"
)

// Gate closes and opens this host in its batch system. Closing or opening it twice is no error; what somebody else
// closed stays closed.
type Gate interface {
	Close(ctx context.Context, reason string) error
	Open(ctx context.Context) error
}

// breakers keep away what keeps failing to start.
type breakers struct {
	gate Gate // nil: no batch system to tell

	mu       sync.Mutex
	set      *breaker.Set
	pending  map[string]*breaker.Ticket // workers' VMs that run, and whose nodes have not been seen yet
	starting map[string]bool            // workers' VMs that boot; true: the node was given up meanwhile
	closed   bool                       // we closed the host in the batch system, also in an earlier life
	trying   bool                       // a VM of our own is the trial
}

func newBreakers(g Gate) breakers {
	return breakers{gate: g, set: breaker.New(breaker.Defaults), pending: map[string]*breaker.Ticket{},
		starting: map[string]bool{}}
}

// takeTicket is a worker's ticket, which nobody gets twice; nil where there is none.
func (b *breakers) takeTicket(id string) *breaker.Ticket {
	t := b.pending[id]
	delete(b.pending, id)
	return t
}

// admit lets a VM start unless its image, its owner or this host backs off.
func (b *breakers) admit(s breaker.Start) (*breaker.Ticket, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.set.Admit(time.Now(), s)
}

// started notes that a start has worked, and reports whether the host has healed by it.
func (b *breakers) started(t *breaker.Ticket) (healed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.set.Started(time.Now(), t)
}

// failed notes that a start came to nothing, and returns what backs off now.
func (b *breakers) failed(t *breaker.Ticket, blame breaker.Blame, text string) []breaker.Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.set.Failed(time.Now(), t, blame, text)
}
