package hypertest

import (
	"context"

	"github.com/grange-project/grange/internal/hyper"
)

// noSpace: a machine that finds no space on its host stands still, which is told, also to whoever listens later; it is
// no end.
func (s *suite) noSpace() {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	m := s.d.Filling(s.T)
	events := s.h.Events(ctx)
	s.start(m)
	s.must(s.h.Resume(s.ctx, m.ID))
	s.stands(events, m)
	s.stands(s.d.Open(s.T).Events(ctx), m)
	s.must(s.h.Stop(s.ctx, m.ID))
	s.event(events, m.ID, hyper.Failed)
}

// resumed: that a machine runs, for the first time and again, is reported.
func (s *suite) resumed() {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	events := s.h.Events(ctx)
	m := s.d.Machine(s.T)
	s.start(m)
	for range 2 {
		s.must(s.h.Resume(s.ctx, m.ID))
		s.next(events, m.ID, func(e hyper.Event) bool { return e.Resumed })
		s.must(s.h.Suspend(s.ctx, m.ID))
	}
	s.must(s.h.Stop(s.ctx, m.ID))
	s.event(events, m.ID, hyper.Failed)
}

func (s *suite) stands(events <-chan hyper.Event, m hyper.Machine) {
	s.Helper()
	if e := s.first(events, m.ID); !e.NoSpace || e.End != "" || e.Reason == "" {
		s.Errorf("the event is %+v", e)
	}
	s.wantState(m, hyper.Paused)
}
