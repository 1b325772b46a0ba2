package authn

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

const (
	maxTries    = 20          // failures of one address that cost nothing
	tryBack     = time.Second // one of them is forgotten in this time
	maxTroubled = 10000       // addresses that are remembered
)

// tries counts failed authentications by address, as a bucket that leaks. Secrets are too long to be guessed; this keeps a program with an
// old token from costing more than it should, and from filling the log.
type tries struct {
	now func() time.Time

	mu   sync.Mutex
	full map[netip.Prefix]time.Time // when the bucket of an address will be empty
}

func newTries(now func() time.Time) *tries {
	return &tries{now: now, full: map[netip.Prefix]time.Time{}}
}

// whole is what one party holds: an IPv4 address, or a /64 of IPv6.
func whole(a netip.Addr) netip.Prefix {
	a = a.Unmap()
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, _ := a.WithZone("").Prefix(bits)
	return p
}

// check refuses an address with too many failures.
func (t *tries) check(a netip.Addr) error {
	if !a.IsValid() {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	full, ok := t.full[whole(a)]
	wait := full.Sub(t.now()) - maxTries*tryBack
	if !ok || wait < 0 { // without ok the difference from the zero time would overflow
		return nil
	}
	return &farm.Error{Kind: farm.Unavailable, Code: farm.CodeTooManyTries, Message: fmt.Sprintf("too many failed tries from %v", a),
		Hint: fmt.Sprintf("stop the program that shows an old token or certificate, and wait %v", wait.Round(time.Second)+time.Second)}
}

// failed counts one failure.
func (t *tries) failed(a netip.Addr) {
	if !a.IsValid() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	until := t.full[whole(a)]
	if until.Before(now) {
		until = now
	}
	if len(t.full) >= maxTroubled {
		t.forget(now)
	}
	t.full[whole(a)] = until.Add(tryBack)
}

// forget drops addresses without failures; when all have some, everybody begins anew, which is better than to grow.
func (t *tries) forget(now time.Time) {
	for p, until := range t.full {
		if until.Before(now) {
			delete(t.full, p)
		}
	}
	if len(t.full) >= maxTroubled {
		clear(t.full)
	}
}
