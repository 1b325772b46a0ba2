package usage

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning"
)

// TestTuned: nobody knows how a host is tuned before it is audited, and after an audit that could not be made.
func TestTuned(t *testing.T) {
	d := open(t, t.TempDir(), "b")
	defer d.Close()
	found := []farm.HostFinding{{Rule: "swap", Severity: "warning", Places: 1}}
	for name, c := range map[string]struct {
		state tuning.HostState
		err   error
		known bool
	}{
		"found":   {tuning.HostState{Digest: "d", Findings: found}, nil, true},
		"clean":   {tuning.HostState{Digest: "d"}, nil, true},
		"a fault": {tuning.HostState{}, errors.New("no /sys"), false},
	} {
		d.tuning, d.audited = tuning.HostState{}, false
		if _, known := d.Tuned(); known {
			t.Errorf("%s: known before", name)
		}
		d.Tuning = func(context.Context) (tuning.HostState, error) { return c.state, c.err }
		d.audit(t.Context())
		if got, known := d.Tuned(); known != c.known || !slices.Equal(got, c.state.Findings) {
			t.Errorf("%s: %+v, %v", name, got, known)
		}
	}
}
