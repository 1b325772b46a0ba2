package binds

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/filebench"
	"github.com/grange-project/grange/internal/filebench/load"
)

// measurement has rates of gateways on ext4.
func measurement(rates map[farm.Gateway]float64) filebench.Measurement {
	m := filebench.Measurement{FileSystem: "ext4", Time: time.Date(2026, 11, 25, 23, 0, 0, 0, time.UTC)}
	for g, rate := range rates {
		for _, phase := range load.Phases {
			m.Results = append(m.Results, filebench.Median{Result: filebench.Result{Gateway: string(g), Phase: phase,
				Rate: rate}})
		}
	}
	return m
}

func TestOrder(t *testing.T) {
	type rates map[farm.Gateway]float64
	type gateways []farm.Gateway
	both, other := gateways{farm.Virtiofs, farm.FUSE}, gateways{farm.FUSE, farm.Virtiofs}
	const first = "the first of virtiofs, fuse; nothing to choose by was measured here for "
	for name, c := range map[string]struct {
		allowed gateways
		on      string
		rates   rates
		want    gateways
		why     string
	}{
		"nothing measured":        {nil, "ext4", nil, both, first + "ext4"},
		"nothing known":           {nil, "", rates{farm.Virtiofs: 1, farm.FUSE: 2}, both, first + "its file system"},
		"virtiofs is faster":      {nil, "ext4", rates{farm.Virtiofs: 5, farm.FUSE: 2}, both, "2.5 times fuse"},
		"fuse is faster":          {nil, "ext4", rates{farm.Virtiofs: 2, farm.FUSE: 3}, other, "1.5 times virtiofs"},
		"both allowed":            {other, "ext4", rates{farm.Virtiofs: 5, farm.FUSE: 2}, both, "of 2026-11-25 for ext4"},
		"equal":                   {nil, "ext4", rates{farm.Virtiofs: 2, farm.FUSE: 2}, both, "1.0 times fuse"},
		"another file system":     {nil, "xfs", rates{farm.Virtiofs: 2, farm.FUSE: 3}, both, first + "xfs"},
		"one was left out":        {nil, "ext4", rates{farm.FUSE: 3}, both, first + "ext4"},
		"what is no gateway":      {nil, "ext4", rates{farm.FUSE: 3, "raw": 9}, both, first + "ext4"},
		"the fast one not let":    {gateways{farm.FUSE}, "ext4", rates{farm.Virtiofs: 5, farm.FUSE: 2}, gateways{farm.FUSE}, "fuse;"},
		"autofs":                  {nil, "autofs", nil, gateways{farm.FUSE}, "mounted when it is used"},
		"autofs, virtiofs alone":  {gateways{farm.Virtiofs}, "autofs", nil, gateways{farm.Virtiofs}, "the first of virtiofs;"},
		"autofs measured with it": {nil, "autofs", rates{farm.Virtiofs: 5, farm.FUSE: 2}, gateways{farm.FUSE}, "autofs"},
	} {
		m := measurement(c.rates)
		got, why := order(c.allowed, c.on, m)
		if !slices.Equal(got, c.want) || !strings.Contains(why, c.why) {
			t.Errorf("%s: %v, %q", name, got, why)
		}
	}
}
