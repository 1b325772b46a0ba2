package server

import (
	"context"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// place runs the placer until ctx ends, which is no error, or another server leads.
func (s *Server) place(ctx context.Context, epoch int64) error {
	p := s.mirror.Lead(epoch)
	s.placer.Store(p)
	defer s.placer.Store(nil)
	return p.Run(ctx)
}

// PlaceNew gives a VM that t is about to insert its place, on the server that leads, as placer.Placer.PlaceNew does; on
// others, none.
func (s *Server) PlaceNew(t *store.Tx, vm *farm.VM) (host string) {
	if p := s.placer.Load(); p != nil {
		return p.PlaceNew(t, vm)
	}
	return ""
}
