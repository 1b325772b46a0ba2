package batch

import (
	"context"
	"slices"
	"testing"
)

// TestPlaceholders: of several of one name the first counts; a name that none can have is of none, and not of all.
func TestPlaceholders(t *testing.T) {
	var removed []string
	of := func(name, job string) Reserved { return Reserved{Reservation: Reservation{Name: name}, Job: job} }
	p := NewPlaceholders(func(_ context.Context, name string) ([]Reserved, error) {
		return slices.DeleteFunc([]Reserved{of("a", "1"), of("a", "2"), of("b", "3")},
			func(b Reserved) bool { return name != "" && b.Name != name }), nil
	}, func(_ context.Context, job string) error { removed = append(removed, job); return nil })
	for _, c := range []struct {
		name, job string
		removed   []string
	}{{"a", "1", []string{"2"}}, {"b", "3", nil}, {"c", "", nil}, {"", "", nil}, {"-all", "", nil}} {
		removed = nil
		if b, err := p.Reserved(t.Context(), c.name); b.Job != c.job || (err == nil) != (c.job != "") ||
			!slices.Equal(removed, c.removed) {
			t.Errorf("%q: %+v, %v, removed %q", c.name, b, err, removed)
		}
	}
	if all, err := p.Reservations(t.Context()); err != nil || len(all) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
	for name, want := range map[string][]string{"a": {"1", "2"}, "c": nil, "": nil} {
		removed = nil
		if err := p.Release(t.Context(), name); err != nil || !slices.Equal(removed, want) {
			t.Errorf("%q: removed %q, %v", name, removed, err)
		}
	}
}
