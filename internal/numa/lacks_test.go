package numa

import (
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

func TestLacksPages(t *testing.T) {
	host := farm.Topology{Nodes: []farm.Node{{ID: 0, Pages: []farm.HugePages{{Size: farm.GiB, Total: 8, Free: 4}}}}}
	for name, c := range map[string]struct {
		cell farm.GuestCell
		want bool
	}{
		"ordinary pages": {farm.GuestCell{Memory: farm.TiB}, false},
		"enough":         {farm.GuestCell{Memory: 4 * farm.GiB, PageSize: farm.GiB}, false},
		"too few":        {farm.GuestCell{Memory: 5 * farm.GiB, PageSize: farm.GiB}, true},
		"no such pool":   {farm.GuestCell{Memory: farm.MiB, PageSize: 2 * farm.MiB}, true},
		"no such node":   {farm.GuestCell{Memory: farm.GiB, PageSize: farm.GiB, Node: 1}, true}} {
		if got := LacksPages(host, farm.Plan{Cells: []farm.GuestCell{c.cell}}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
