package hostlink

import (
	"bytes"
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
	"github.com/grange-project/grange/internal/throttle"
)

const (
	// AuthoritySetting is where the fleet's authorities are kept, with their keys, which are sealed.
	AuthoritySetting = "authority"
	// wipeSetting is there while the database may still have a key in it that was not sealed.
	wipeSetting = "wipe"
	// doubtEach is how often the authorities are read anew because others show or report some that are not known.
	doubtEach = 50 * time.Millisecond
)

// authorities are those of the fleet as this server read them last.
type authorities struct {
	pki.CAs
	text  []byte           // as they are kept
	at    int64            // revision of the store at which that was so; 0: to be read again
	peers *pki.Authorities // who vouches for hosts

	trusted unique.Handle[string] // all of them
	issuer  unique.Handle[string] // the newest
}

// fleetCA keeps the fleet's authorities, and replaces one by the next.
type fleetCA struct {
	*Options
	hosts    *hosts
	actions  action.Actions
	renewals throttle.Buckets // hosts that are asked to renew their certificates
	doubts   throttle.Buckets // of what this server knows of the fleet's authorities
	due      string           // what RetireDue, which alone uses it, found due last time

	mu    sync.Mutex
	cas   authorities
	peers map[[sha256.Size]byte]pki.Peer // verified certificates; with a host's ID in each
}

// Authorities are the fleet's own, as any of its servers left them. The first server of a fleet makes one at its first
// start. One whose key an older release has kept as it is is sealed, and nothing of that key is left in the database.
func (s *fleetCA) Authorities(ctx context.Context) (pki.CAs, error) {
	a, err := s.authorities(ctx)
	return a.CAs, err
}

func (s *fleetCA) authorities(ctx context.Context) (authorities, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.cas
	if changed, _ := s.Hub.Own(authorityKey, a.at); a.at != 0 && !changed {
		return *a, nil
	}
	if err := s.readAuthorities(ctx, a); err != nil {
		return authorities{}, fmt.Errorf("the fleet's authority: %w", err)
	}
	return *a, nil
}

// rereadAuthorities has them read again at their next use.
func (s *fleetCA) rereadAuthorities() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cas.at = 0
}

// doubtAuthorities is rereadAuthorities on the word of others, who may be strangers: it does nothing, and reports
// false, when that was often lately. What is known is no older than doubtEach then.
func (s *fleetCA) doubtAuthorities() bool {
	room, _ := s.doubts.Add("")
	if room {
		s.rereadAuthorities()
	}
	return room
}

// readAuthorities reads what there is, unless it is as it was. It is called with the lock held.
func (s *fleetCA) readAuthorities(ctx context.Context, a *authorities) error {
	var text []byte
	var at int64
	wipe := false
	err := s.Store.View(ctx, func(t *store.Tx) (err error) {
		at = t.Revision()
		if text, err = t.Setting(AuthoritySetting); err != nil {
			return err
		}
		_, other := t.Setting(wipeSetting)
		wipe = other == nil
		return nil
	})
	switch {
	case action.Missing(err) || err == nil && (wipe || pki.Unsealed(text)):
		if err := s.makeAuthority(ctx); err != nil {
			return err
		}
		return s.readAuthorities(ctx, a)
	case err != nil:
		return err
	case bytes.Equal(text, a.text):
		a.at = at
		return nil
	}
	seal, err := pki.ReadSeal(s.CAKeyFile)
	if err != nil {
		return err
	}
	cas, err := pki.ParseCAs(text, seal)
	if err != nil {
		return err
	}
	var all []string
	for _, ca := range cas.All() {
		all = append(all, ca.Fingerprint())
	}
	*a = authorities{CAs: cas, text: text, at: at, peers: pki.NewAuthorities(cas.Certificates(), s.Site),
		trusted: trusted(all), issuer: unique.Make(cas.Newest().Fingerprint())}
	clear(s.peers) // some were of an authority that is retired
	return nil
}

// makeAuthority makes a fleet's first authority, or seals the one that there is.
func (s *fleetCA) makeAuthority(ctx context.Context) error {
	wipe := false
	_, err := s.Store.Update(ctx, func(tx *store.Tx) error {
		text, err := tx.Setting(AuthoritySetting)
		switch {
		case action.Missing(err):
			err = s.newAuthority(tx)
		case err == nil && pki.Unsealed(text):
			err = s.sealAuthority(tx, text)
		}
		if err != nil {
			return err
		}
		_, err = tx.Setting(wipeSetting)
		if wipe = err == nil; action.Missing(err) {
			return nil
		}
		return err
	})
	if err == nil && wipe {
		err = s.wipe(ctx)
	}
	return err
}

func (s *fleetCA) newAuthority(tx *store.Tx) error {
	seal, err := pki.MakeSeal(s.CAKeyFile)
	if err != nil {
		return err
	}
	ca, err := pki.NewCA(s.Now())
	if err != nil {
		return err
	}
	return putAuthorities(tx, pki.CAs{Present: ca}, seal)
}

func (s *fleetCA) sealAuthority(tx *store.Tx, text []byte) error {
	seal, err := pki.MakeSeal(s.CAKeyFile)
	if err != nil {
		return err
	}
	cas, err := pki.ParseCAs(text, seal)
	if err != nil {
		return err
	}
	if err := tx.PutSetting(wipeSetting, []byte("true")); err != nil {
		return err
	}
	return putAuthorities(tx, cas, seal)
}

func putAuthorities(tx *store.Tx, cas pki.CAs, seal pki.Seal) error {
	text, err := cas.Marshal(seal)
	if err != nil {
		return err
	}
	return tx.PutSetting(AuthoritySetting, text)
}

// wipe leaves nothing in the database of a key that was in it as it is. After a crash the next start does it again.
func (s *fleetCA) wipe(ctx context.Context) error {
	s.Log.Info("the key of the fleet's authority is sealed from now on: writing the database anew", "key file",
		s.CAKeyFile)
	if err := s.Store.Rewrite(ctx); err != nil {
		return err
	}
	_, err := s.Store.Update(ctx, func(tx *store.Tx) error { return tx.DeleteSetting(wipeSetting) })
	if action.Missing(err) { // another server did the same
		return nil
	}
	return err
}

// verified is what the certificate with this sum was found to say; the zero Peer where it was not verified.
func (s *fleetCA) verified(sum [sha256.Size]byte) pki.Peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peers[sum]
}

func (s *fleetCA) setVerified(sum [sha256.Size]byte, peer pki.Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peers[sum] = peer
}

// peer reads a host's certificates. One of an authority that is not known may be of one that another server has made
// just now.
func (s *fleetCA) peer(ctx context.Context, shown []*x509.Certificate) (pki.Peer, error) {
	for again := false; ; again = true {
		a, err := s.authorities(ctx)
		if err != nil {
			return pki.Peer{}, err
		}
		peer, err := a.peers.Peer(shown, s.Now())
		if again || !farm.IsCode(err, pki.CodeUnknownCert) || !s.doubtAuthorities() {
			return peer, err
		}
	}
}
