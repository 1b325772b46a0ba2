package server

import (
	"context"
	"fmt"

	"github.com/grange-project/grange/internal/pki"
	"github.com/grange-project/grange/internal/store"
)

const (
	// authoritySetting is where the fleet's authority is kept, with its key, which is sealed.
	authoritySetting = "authority"
	// wipeSetting is there while the database may still have a key in it that was not sealed.
	wipeSetting = "wipe"
)

// Authority is the fleet's own authority. The first server of a fleet makes it at its first start. One whose key an older release has kept as
// it is is sealed, and nothing of that key is left in the database.
func (s *Server) Authority(ctx context.Context) (*pki.CA, error) {
	s.links.mu.Lock()
	defer s.links.mu.Unlock()
	if s.links.ca != nil {
		return s.links.ca, nil
	}
	ca, wipe, err := s.readAuthority(ctx)
	if err == nil && wipe {
		err = s.wipe(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("the fleet's authority: %w", err)
	}
	s.links.ca, s.links.authorities = ca, pki.NewAuthorities(ca.Certificate, s.site)
	return ca, nil
}

// readAuthority reads the authority or makes it. wipe: the database may have its key as it is.
func (s *Server) readAuthority(ctx context.Context) (ca *pki.CA, wipe bool, err error) {
	_, err = s.store.Update(ctx, func(tx *store.Tx) error {
		text, err := tx.Setting(authoritySetting)
		switch {
		case missing(err):
			ca, err = s.newAuthority(tx)
		case err != nil:
		case pki.Unsealed(text):
			ca, err = s.sealAuthority(tx, text)
		default:
			ca, err = s.openAuthority(text)
		}
		if err != nil {
			return err
		}
		_, err = tx.Setting(wipeSetting)
		if wipe = err == nil; missing(err) {
			return nil
		}
		return err
	})
	return ca, wipe, err
}

func (s *Server) newAuthority(tx *store.Tx) (*pki.CA, error) {
	seal, err := pki.MakeSeal(s.caKeyFile)
	if err != nil {
		return nil, err
	}
	ca, err := pki.NewCA(s.now())
	if err != nil {
		return nil, err
	}
	return ca, putAuthority(tx, ca, seal)
}

func (s *Server) sealAuthority(tx *store.Tx, text []byte) (*pki.CA, error) {
	seal, err := pki.MakeSeal(s.caKeyFile)
	if err != nil {
		return nil, err
	}
	ca, err := pki.ParseCA(text, seal)
	if err != nil {
		return nil, err
	}
	if err := tx.PutSetting(wipeSetting, []byte("true")); err != nil {
		return nil, err
	}
	return ca, putAuthority(tx, ca, seal)
}

func (s *Server) openAuthority(text []byte) (*pki.CA, error) {
	seal, err := pki.ReadSeal(s.caKeyFile)
	if err != nil {
		return nil, err
	}
	return pki.ParseCA(text, seal)
}

func putAuthority(tx *store.Tx, ca *pki.CA, seal pki.Seal) error {
	text, err := ca.Marshal(seal)
	if err != nil {
		return err
	}
	return tx.PutSetting(authoritySetting, text)
}

// wipe leaves nothing in the database of a key that was in it as it is. After a crash the next start does it again.
func (s *Server) wipe(ctx context.Context) error {
	s.log.Info("the key of the fleet's authority is sealed from now on: writing the database anew", "key file", s.caKeyFile)
	if err := s.store.Rewrite(ctx); err != nil {
		return err
	}
	_, err := s.store.Update(ctx, func(tx *store.Tx) error { return tx.DeleteSetting(wipeSetting) })
	if missing(err) { // another server did the same
		return nil
	}
	return err
}
