package hostlink

import (
	"testing"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

func TestCheckCapability(t *testing.T) {
	for capability, want := range map[int]farm.Code{fleet.OldestCapability - 1: farm.CodeAgentOld,
		fleet.OldestCapability: "", fleet.Capability: "", fleet.Capability + ahead: "",
		fleet.Capability + ahead + 1: farm.CodeAgentNew} {
		if err := CheckCapability(capability); (err == nil) != (want == "") || err != nil && !farm.IsCode(err, want) {
			t.Errorf("%d: %v, not %q", capability, err, want)
		}
	}
}
