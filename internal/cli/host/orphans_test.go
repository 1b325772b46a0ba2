package host

import (
	"slices"
	"testing"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

func TestOrphansOf(t *testing.T) {
	a, b, c := fleet.Orphan{ID: "1", Name: "p/a"}, fleet.Orphan{ID: "2", Name: "p/b"}, fleet.Orphan{ID: "3",
		Name: "p/a"}
	h := fleet.Host{Name: "wn-1", Orphans: []fleet.Orphan{a, b, c}}
	for name, c := range map[string]struct {
		names []string
		want  []fleet.Orphan // nil: an error
	}{
		"all":             {nil, []fleet.Orphan{a, b, c}},
		"by ID":           {[]string{"2"}, []fleet.Orphan{b}},
		"a name of two":   {[]string{"p/a"}, []fleet.Orphan{a, c}},
		"ID and name":     {[]string{"3", "p/a"}, []fleet.Orphan{c, a}},
		"one that is not": {[]string{"2", "p/x"}, nil},
	} {
		got, err := orphansOf(h, c.names)
		if !slices.Equal(got, c.want) || farm.IsCode(err, farm.CodeNoVM) != (c.want == nil) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
