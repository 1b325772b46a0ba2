package cli

import (
	"slices"
	"testing"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

func TestOrphansOf(t *testing.T) {
	a, b, c := fleet.Stranger{ID: "1", Name: "p/a"}, fleet.Stranger{ID: "2", Name: "p/b"}, fleet.Stranger{ID: "3",
		Name: "p/a"}
	h := fleet.Host{Name: "wn-1", Strangers: []fleet.Stranger{a, b, c}}
	for name, c := range map[string]struct {
		names []string
		want  []fleet.Stranger // nil: an error
	}{
		"all":             {nil, []fleet.Stranger{a, b, c}},
		"by ID":           {[]string{"2"}, []fleet.Stranger{b}},
		"a name of two":   {[]string{"p/a"}, []fleet.Stranger{a, c}},
		"ID and name":     {[]string{"3", "p/a"}, []fleet.Stranger{c, a}},
		"one that is not": {[]string{"2", "p/x"}, nil},
	} {
		got, err := orphansOf(h, c.names)
		if !slices.Equal(got, c.want) || farm.IsCode(err, farm.CodeNoVM) != (c.want == nil) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
