package server

import (
	"context"

	"github.com/grange-project/grange/internal/server/accounts"
	"github.com/grange-project/grange/internal/server/hostlink"
	"github.com/grange-project/grange/internal/store"
)

// URL is by which hosts and other servers reach this one.
func (s *Server) URL() string { return s.url }

// Leads reports whether this one of the servers runs the loops now.
func (s *Server) Leads() bool { return s.mirror.Leading() }

// Revision is the store's, now.
func (s *Server) Revision(ctx context.Context) (revision int64, err error) {
	err = s.store.View(ctx, func(t *store.Tx) error {
		revision = t.Revision()
		return nil
	})
	return revision, err
}

// Directory is who calls the server: hosts, and users.
type Directory struct {
	*accounts.Accounts
	*hostlink.Links
}

// Directory is the server's.
func (s *Server) Directory() Directory { return Directory{s.Accounts, s.Links} }
