package hostlink

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"sync"
	"time"
	"unique"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pki"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// link is one host. A server has thousands of them: it is kept small.
type link struct {
	pulse    pulse
	mu       sync.Mutex
	id, name string
	serial   string
	before   string
	issuer   unique.Handle[string] // of serial, as farm.Host's; most hosts have the same
	// fingerprints that the agent reported, as trusted has them; the zero value: it did not yet
	trusts unique.Handle[string]
	asked  time.Time // to renew its certificate, in a rotation
	at     int64     // revision of the store at which all this was read

	instance, boot string
	superseded     []string      // instances that another one took over from, newest last
	clock          time.Duration // how far the host's is ahead

	facts   [sha256.Size]byte // of the last facts, without what changes by itself
	sent    int64             // revision of the wanted list that was sent last
	checked int64             // revision at which it was still the same
	// it has no VMs and no streams, and the host is open: only what concerns all can change it without its own key
	empty     bool
	list      [sha256.Size]byte // of what was sent
	elsewhere []string          // VMs that it has, and that the store has on another host
}

// HostAt is which host a connection speaks for, by the certificates it showed, the host's first. Nobody else may ask
// what a host asks.
func (s *Links) HostAt(ctx context.Context, shown []*x509.Certificate) (farm.Identity, error) {
	l, serial, err := s.linkOf(ctx, shown)
	if err != nil {
		return farm.Identity{}, err
	}
	return farm.Identity{Host: l.id, Means: "certificate", Source: serial}, nil
}

// linkOf verifies certificates and finds the host that they are of. What was verified once is not verified again while
// it lasts: a host asks every minute, and there may be thousands.
func (s *Links) linkOf(ctx context.Context, shown []*x509.Certificate) (*link, string, error) {
	now := s.Now()
	if _, err := s.authorities(ctx); err != nil { // forgets peers when one is retired
		return nil, "", err
	}
	var sum [sha256.Size]byte
	if len(shown) > 0 {
		sum = sha256.Sum256(shown[0].Raw)
		peer := s.verified(sum)
		if l := s.linkNow(peer.ID); l != nil && now.Before(peer.Expires) {
			return l, peer.Serial, s.current(ctx, l, peer.Serial)
		}
	}
	peer, err := s.peer(ctx, shown)
	if err != nil {
		return nil, "", err
	}
	l, err := s.linkOfPeer(ctx, peer)
	if err != nil {
		return nil, "", err
	}
	peer.ID = l.id
	s.setVerified(sum, peer)
	return l, peer.Serial, s.current(ctx, l, peer.Serial)
}

// linkOfPeer finds a host by what its certificate says.
func (s *Links) linkOfPeer(ctx context.Context, peer pki.Peer) (*link, error) {
	id := peer.ID
	if id == "" {
		var h farm.Host
		err := s.Store.View(ctx, func(tx *store.Tx) (err error) {
			h, err = tx.HostNamed(peer.Name)
			return err
		})
		if action.Missing(err) {
			return nil, forgotten(peer.Name)
		}
		if err != nil {
			return nil, err
		}
		id = h.ID
	}
	return s.link(id), nil
}

// current refuses a certificate that the host's row does not have any more. The row is read again when the change feed
// says that it changed.
func (s *Links) current(ctx context.Context, l *link, serial string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for again := false; ; again = true {
		if err := s.refresh(ctx, l); err != nil {
			return err
		}
		switch {
		case serial == l.serial:
			return s.renewed(ctx, l)
		case serial == l.before:
			return nil
		case again:
			return revoked(l.name)
		}
		l.at = 0 // another server may have renewed it just now
	}
}

func revoked(host string) error {
	return &farm.Error{Kind: farm.Denied, Code: farm.CodeRevokedCert,
		Message: fmt.Sprintf("this certificate of host %s was replaced by another one", host),
		Hint: "another machine, or this one installed anew, joined as " + host +
			"; if this is the right one: `grange host join --replace`"}
}

// renewed ends the life of the certificate before, now that the current one was seen. The link is locked.
func (s *Links) renewed(ctx context.Context, l *link) error {
	if l.before == "" {
		return nil
	}
	_, err := s.Store.Update(ctx, func(tx *store.Tx) error {
		h, err := tx.Host(l.id)
		if err != nil || h.Serial != l.serial || h.Before == "" {
			return err
		}
		h.Before = ""
		return tx.SetHost(h)
	})
	l.before = ""
	return err
}

// refresh reads a host's row where that may have changed. The link is locked.
func (s *Links) refresh(ctx context.Context, l *link) error {
	if changed, _ := s.Hub.Own(l.id, l.at); l.at != 0 && !changed {
		return nil
	}
	err := s.Store.View(ctx, func(tx *store.Tx) error {
		read := tx.HostBrief
		if l.instance == "" {
			read = tx.Host
		}
		h, err := read(l.id)
		if err != nil {
			return err
		}
		l.at = tx.Revision()
		l.name, l.serial, l.before, l.issuer = h.Name, h.Serial, h.Before, unique.Make(h.Issuer)
		if l.instance == "" { // what another server, or this one before it was started anew, knew
			l.instance, l.boot = h.Facts.Instance, h.Facts.Boot
			l.pulse.recall(h.Seen)
			// A poll that was under way then comes here by itself, and no report brings the facts again.
			l.trusts = trustedBy(h.Facts.Trusts)
		}
		return nil
	})
	if action.Missing(err) {
		s.unlink(l.id)
		return forgotten(l.id)
	}
	return err
}

func forgotten(host string) error {
	return &farm.Error{Kind: farm.Denied, Code: farm.CodeRevokedCert,
		Message: "no host " + host + " is enrolled here any more",
		Hint:    "it was forgotten, or joined another fleet: `grange host join` with a new token"}
}
