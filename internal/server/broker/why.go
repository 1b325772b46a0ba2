package broker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/placement"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// Explain puts answers of batch systems in the place of "its VMs are placed by a batch system". It asks them; one
// that is away says so.
func (s *Brokers) Explain(ctx context.Context, vm farm.VM, e placement.Explanation) (placement.Explanation, error) {
	ofBatch := map[string][]placement.Answer{}
	for _, a := range e.Each {
		if a.Constraint == placement.OfABatch {
			ofBatch[a.Cell] = append(ofBatch[a.Cell], a)
		}
	}
	for name, answers := range ofBatch {
		told, err := s.askBatch(ctx, vm, name)
		if err != nil && !ofOne(err) {
			return e, err
		}
		if err != nil {
			for i := range answers {
				answers[i].Message = err.Error()
			}
			told.Each = answers
		}
		e.Changes = append(e.Changes, told.Changes...)
		e = e.With(told.Each)
	}
	return e, nil
}

// askBatch explains where in a cell of a batch system a VM could be. One is asked at a time: each takes several
// commands.
func (s *Brokers) askBatch(ctx context.Context, vm farm.VM, name string) (e placement.Explanation, err error) {
	select {
	case s.explaining <- struct{}{}:
		defer func() { <-s.explaining }()
	case <-ctx.Done():
		return e, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	cell, err := s.cellNow(ctx, name)
	if err != nil {
		return e, err
	}
	here, err := s.startPass(ctx, 0, cell)
	if err != nil {
		return e, err
	}
	here.memory = newReservations() // what the loop remembers is its own
	p, err := here.reservePass(ctx)
	if err == nil {
		err = p.fill(ctx)
	}
	if err != nil {
		return e, err
	}
	if e, err = p.explain(p.request(vm)); err != nil || vm.Reservation == "" {
		return e, err
	}
	reserved, err := p.system.Reserved(ctx, vm.ID)
	if farm.IsKind(err, farm.NotFound) || err == nil && reserved.Held {
		return e, nil
	}
	h, _ := p.hostOf(reserved.Host)
	for i, a := range e.Each {
		if a.Host == h.ID {
			e.Each[i].Fits, e.Each[i].Constraint, e.Each[i].Message = false, placement.OfABatch, p.pending(reserved)
		}
	}
	return e, err
}

func (s *Brokers) cellNow(ctx context.Context, name string) (cell farm.Cell, err error) {
	err = s.Store.View(ctx, func(t *store.Tx) (err error) {
		if cell, err = t.Cell(name); action.Missing(err) {
			return nil
		}
		return err
	})
	return cell, err
}

// explain returns for each host of the cell why it is not reserved for a request, or that it may be.
func (p *reservePass) explain(r placement.Request) (placement.Explanation, error) {
	e, err := p.fleet.Why(r)
	if err != nil {
		return e, err
	}
	for i, a := range e.Each {
		// of CPUs the batch system has the word
		lacks := a.Fits || a.Constraint == placement.NoCPUs || a.Constraint == placement.InPieces
		if free := p.free[a.Host]; lacks && free < r.Shape.CPUs {
			e.Each[i].Fits, e.Each[i].Constraint = false, placement.NoCPUs
			e.Each[i].Message = fmt.Sprintf("%d of its %d CPUs are free in %s", free, p.nodes[a.Host].CPUs,
				p.cell.Broker)
		}
	}
	return e.With(nil), nil
}

// noRoom returns why no host is reserved for a request, in a sentence.
func (p *reservePass) noRoom(r placement.Request) string {
	e, err := p.explain(r)
	if err != nil {
		return err.Error()
	}
	alike := map[string][]string{} // names of hosts by what they say
	var said []string
	for _, a := range e.Each {
		if alike[a.Message] == nil {
			said = append(said, a.Message)
		}
		alike[a.Message] = append(alike[a.Message], a.Name)
	}
	slices.SortStableFunc(said, func(a, b string) int { return cmp.Compare(len(alike[b]), len(alike[a])) })
	const most = 3 // a big cell has many reasons; `grange why` has all
	var why []string
	for _, text := range said[:min(most, len(said))] {
		who := alike[text][0]
		if n := len(alike[text]); n > 1 {
			who += " and " + farm.Count(n-1, "other host")
		}
		why = append(why, who+": "+text)
	}
	if len(said) > most {
		why = append(why, "others have other reasons, see `grange why`")
	}
	return fmt.Sprintf("no host of cell %s has room that %s can reserve: %s", p.cell.Name, p.cell.Broker,
		strings.Join(why, "; "))
}
