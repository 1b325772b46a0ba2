package tuning

import (
	"slices"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// TestStateOf: what is found of a host by rule, without what is found of single VMs.
func TestStateOf(t *testing.T) {
	rule := func(id string, found ...Finding) Result {
		for i := range found {
			found[i].Rule = id
		}
		return Result{Rule: Rule{ID: id}, Findings: found}
	}
	r := Report{Results: []Result{
		rule("swap", Finding{Severity: Warning, Where: "host"}),
		rule("pins", Finding{Severity: Fault, Where: "VM web3"}),
		rule("pages", Finding{Severity: Advice, Where: "node 1"}, Finding{Severity: Fault, Where: "node 0"},
			Finding{Severity: Warning, Where: "VM web3"}),
	}}
	s := stateOf(r)
	want := []farm.HostFinding{{Rule: "pages", Severity: "fault", Places: 2},
		{Rule: "swap", Severity: "warning", Places: 1}}
	if !slices.Equal(s.Findings, want) || s.Places() != 3 {
		t.Errorf("%+v, %d places", s.Findings, s.Places())
	}
	r.Results = append(r.Results[:1:1], r.Results[2]) // a VM less
	if again := stateOf(r); again.Digest != s.Digest {
		t.Errorf("a VM changes the state of its host: %s, %s", s.Digest, again.Digest)
	}
	r.Results = r.Results[1:]
	if other := stateOf(r); other.Digest == s.Digest {
		t.Error("a finding less, and the state is the same")
	}
}
