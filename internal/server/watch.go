package server

import (
	"context"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/server/hub"
	"github.com/grange-project/grange/internal/store"
)

// feedPage is how many changes are read at once.
const feedPage = 1000

// Watch waits until something of the filter changed after a revision that the caller may see, or ctx ends. Watch again
// from upTo. It fails with store.CodeFeedGone when the feed does not reach back so far.
func (s *Server) Watch(ctx context.Context, who farm.Identity, f WatchFilter, after int64) (changes []Watched,
	upTo int64, err error) {
	for upTo = after; ; {
		feed, to, err := s.store.Changes(ctx, upTo, feedPage)
		if err != nil {
			return nil, upTo, err
		}
		if changes, err = s.seenOf(ctx, who, f.of(feed)); err != nil {
			return nil, upTo, err
		}
		upTo = to
		if len(changes) > 0 {
			return changes, upTo, nil
		}
		if len(feed) > 0 {
			continue
		}
		if err := s.hub.Wait(ctx, hub.Everything, upTo); err != nil {
			return nil, upTo, err
		}
	}
}

// of are the changes that the filter chooses, and that anybody is told.
func (f WatchFilter) of(feed []store.Change) (chosen []store.Change) {
	for _, ch := range feed {
		if f.chooses(ch) {
			chosen = append(chosen, ch)
		}
	}
	return chosen
}

func (f WatchFilter) chooses(ch store.Change) bool {
	switch ch.Kind {
	case store.KindVM:
		if f.Project != "" && ch.Project != f.Project && !ch.Deleted {
			return false
		}
	case store.KindHost, store.KindCell, store.KindShape, store.KindNetwork, store.KindProject, store.KindGroup,
		store.KindImage, store.KindImageName:
	default:
		return false
	}
	return len(f.Kinds) == 0 || slices.Contains(f.Kinds, string(ch.Kind))
}

// seenOf are the changes that somebody may see, each object once, as it is now.
func (s *Server) seenOf(ctx context.Context, who farm.Identity, feed []store.Change) (changes []Watched, err error) {
	if len(feed) == 0 {
		return nil, nil
	}
	err = s.look(ctx, who, policy.ReadVM, func(c *call) error {
		changes = nil
		last := map[store.Change]int{}
		for i, ch := range feed {
			last[store.Change{Kind: ch.Kind, ID: ch.ID}] = i
		}
		for i, ch := range feed {
			if last[store.Change{Kind: ch.Kind, ID: ch.ID}] != i {
				continue
			}
			w, ok, err := watching{c}.watched(ch)
			if err != nil {
				return err
			}
			if ok {
				changes = append(changes, w)
			}
		}
		return nil
	})
	return changes, err
}

// watching shows changes of the feed to those who watch.
type watching struct{ *call }

// watched is one change as the caller may see it; ok is false when it may not. What has gone is gone for those who may
// see its project, or the whole farm: whose it was nobody knows any more.
func (c watching) watched(ch store.Change) (w Watched, ok bool, err error) {
	w = Watched{Revision: ch.Revision, Kind: string(ch.Kind), ID: ch.ID, Deleted: ch.Deleted}
	switch ch.Kind {
	case store.KindVM:
		if !c.maySee(policy.ReadVM, ch.Project) {
			return w, false, nil
		}
		err = c.watchedVM(ch, &w)
		return w, w.VM != nil || w.Deleted &&
			c.Allowed(policy.ReadVM, policy.Target{Project: ch.Project, Owner: c.Who.User}), err
	case store.KindHost:
		if !c.maySee(policy.ReadHost, "") {
			return w, false, nil
		}
		err = c.watchedHost(ch, &w)
		return w, w.Host != nil || w.Deleted && c.Allowed(policy.ReadHost, policy.Target{}), err
	case store.KindCell:
		if !c.Allowed(policy.ReadCatalogue, policy.Target{}) {
			return w, false, nil
		}
		err = c.watchedCell(ch, &w)
		return w, err == nil, err
	case store.KindShape, store.KindNetwork, store.KindImage, store.KindImageName:
		return w, c.Allowed(policy.ReadCatalogue, policy.Target{}), nil
	case store.KindProject, store.KindGroup:
		return w, c.Allowed(policy.ReadProject, policy.Target{Project: projectOf(ch)}), nil
	}
	return w, false, nil
}

func (c watching) watchedVM(ch store.Change, w *Watched) error {
	vm, err := c.Tx.VM(ch.ID)
	if action.Missing(err) {
		w.Deleted = true
		return nil
	}
	if err != nil || !c.Sees(vm) {
		return err
	}
	view, err := c.show(vm)
	w.VM, w.Deleted = &view, false
	return err
}

func (c watching) watchedHost(ch store.Change, w *Watched) error {
	h, err := c.Tx.Host(ch.ID)
	if action.Missing(err) {
		w.Deleted = true
		return nil
	}
	if err != nil || !c.SeesHost(h) {
		return err
	}
	view, err := c.showOne(h)
	w.Host, w.Deleted = &view, false
	return err
}

func (c watching) watchedCell(ch store.Change, w *Watched) error {
	cell, err := c.Tx.Cell(ch.ID)
	if action.Missing(err) {
		w.Deleted = true
		return nil
	}
	if err != nil {
		return err
	}
	view, err := c.showCell(cell)
	w.Cell, w.Deleted = &view, false
	return err
}

// projectOf is the project of a change of a project or a server group.
func projectOf(ch store.Change) string {
	if ch.Project != "" {
		return ch.Project
	}
	project, _, _ := strings.Cut(ch.ID, "/")
	return project
}
