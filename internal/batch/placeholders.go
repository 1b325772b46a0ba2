package batch

import (
	"context"
	"slices"
)

// Placeholders are the jobs that hold reservations, of a system that may have several of one name: two processes that
// reserve at the same moment submit two. A driver embeds them.
type Placeholders struct {
	list   func(ctx context.Context, name string) ([]Reserved, error)
	remove func(ctx context.Context, job string) error
}

// NewPlaceholders takes what only the driver can do. list returns the reservations of a name, or all where that is "",
// in the order of their names, and of one name the one first that counts. remove takes a job out of the queue; one that
// has gone meanwhile is no error.
func NewPlaceholders(list func(ctx context.Context, name string) ([]Reserved, error),
	remove func(ctx context.Context, job string) error) Placeholders {
	return Placeholders{list, remove}
}

// Reserved finds a reservation by its name, and removes what else has that name.
func (p Placeholders) Reserved(ctx context.Context, name string) (Reserved, error) {
	if !ValidName(name) {
		return Reserved{}, NoReservation(name)
	}
	all, err := p.list(ctx, name)
	if err != nil {
		return Reserved{}, err
	}
	if len(all) == 0 {
		return Reserved{}, NoReservation(name)
	}
	for _, extra := range all[1:] {
		if err := p.remove(ctx, extra.Job); err != nil {
			return Reserved{}, err
		}
	}
	return all[0], nil
}

// Reservations are all of them, one of each name.
func (p Placeholders) Reservations(ctx context.Context) ([]Reserved, error) {
	all, err := p.list(ctx, "")
	if err != nil {
		return nil, err
	}
	return slices.CompactFunc(all, func(a, b Reserved) bool { return a.Name == b.Name }), nil
}

// Release removes all of this name.
func (p Placeholders) Release(ctx context.Context, name string) error {
	if !ValidName(name) {
		return nil // no reservation was ever called so
	}
	all, err := p.list(ctx, name)
	if err != nil {
		return err
	}
	for _, b := range all {
		if err := p.remove(ctx, b.Job); err != nil {
			return err
		}
	}
	return nil
}
