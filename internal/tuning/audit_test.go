package tuning

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
)

// finds makes a rule that finds one thing of each of the severities.
func finds(id string, highest Severity, severities ...Severity) Rule {
	return Rule{ID: id, Severity: highest, Sources: []Source{{Name: "a", Says: "b"}},
		Check: func(farm.HostFacts, Profile) []Finding {
			var out []Finding
			for _, s := range severities {
				out = append(out, Finding{Severity: s, Where: id + s.String(), Wanted: "w", Got: "g"})
			}
			return out
		}}
}

func TestAuditSortsAndSkips(t *testing.T) {
	onlyService, unproven := finds("only-service", Fault, Fault), finds("unproven", Fault, Fault)
	onlyService.Roles, unproven.Sources = []Role{Service}, nil
	rules := []Rule{finds("small", Advice, Advice), onlyService, finds("mixed", Fault, Advice, Fault), unproven,
		finds("nothing", Fault), finds("left-out", Fault, Fault), finds("implied", Warning, 0)}
	r, err := audit(rules, nil, farm.HostFacts{}, Profile{}, Compute, Options{Skip: []string{"left-out"}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range r.Findings() {
		got = append(got, f.Rule+" "+f.Severity.String()+" "+f.Where)
	}
	want := []string{"mixed fault mixedfault", "mixed advice mixedadvice", "implied warning impliedseverity 0",
		"small advice smalladvice"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	var skipped []string
	for _, s := range r.Skipped {
		skipped = append(skipped, s.Rule.ID+": "+s.Reason)
	}
	want = []string{"only-service: does not hold for a host of role compute", "unproven: has no evidence",
		"left-out: left out by --skip"}
	if d := cmp.Diff(want, skipped); d != "" {
		t.Error(d)
	}
	if r.Applied != 4 || r.Worst() != Fault || r.Count(Advice) != 2 || r.Count(Warning) != 1 || r.Count(Fault) != 1 {
		t.Errorf("asked %d, worst %v, counts %d %d %d", r.Applied, r.Worst(), r.Count(Advice), r.Count(Warning),
			r.Count(Fault))
	}
}

func TestAuditOnly(t *testing.T) {
	rules := []Rule{finds("ept-off", Fault, Fault), finds("ksm-on", Warning, Warning)}
	r, err := audit(rules, nil, farm.HostFacts{}, Profile{}, Compute, Options{Only: []string{"ksm-on"}})
	if err != nil || len(r.Results) != 1 || r.Results[0].Rule.ID != "ksm-on" || len(r.Skipped) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	for id, hint := range map[string]string{"ept-of": "did you mean ept-off?", "ksm": "did you mean ksm-on?",
		"elephant": "`grange tune rules` lists them"} {
		_, err := audit(rules, nil, farm.HostFacts{}, Profile{}, Compute, Options{Only: []string{id}})
		own := new(farm.Error)
		if !errors.As(err, &own) || own.Code != farm.CodeNoRule || !strings.HasPrefix(own.Hint, hint) {
			t.Errorf("%s: %v, hint %q", id, err, own.Hint)
		}
	}
}

func TestRulesAboutVMsNeedVMs(t *testing.T) {
	rules := []Rule{finds("vm-odd", Fault, Fault)}
	rules[0].Roles = []Role{Compute, Guest}
	r, err := audit(nil, rules, farm.HostFacts{}, Profile{}, Compute, Options{})
	if err != nil || r.Applied != 0 || len(r.Skipped) != 1 || r.Skipped[0].Reason != "no VM is described here" {
		t.Errorf("without VMs: %+v, %v", r, err)
	}
	if r, err = audit(nil, rules, farm.HostFacts{Domains: []farm.Domain{{}}}, Profile{}, Compute,
		Options{}); err != nil || len(r.Results) != 1 {
		t.Errorf("with a VM: %+v, %v", r, err)
	}
	if r, err = audit(nil, rules, farm.HostFacts{}, Profile{}, Guest, Options{}); err != nil || len(r.Results) != 1 {
		t.Errorf("in a VM: %+v, %v", r, err)
	}
}

func TestNothingFound(t *testing.T) {
	r, err := audit(nil, nil, farm.HostFacts{}, Profile{}, Compute, Options{})
	if err != nil || r.Worst() != 0 || r.Findings() != nil {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestDefaultRole(t *testing.T) {
	for _, c := range []struct {
		host farm.HostFacts
		want Role
	}{
		{farm.HostFacts{}, Compute},
		{farm.HostFacts{Virtual: true}, Guest},
		{farm.HostFacts{Virtual: true, KVM: farm.KVM{Loaded: true}}, Compute},
		{farm.HostFacts{Virtual: true, Versions: farm.Versions{QEMU: "9.0"}}, Compute},
		{farm.HostFacts{Virtual: true, Domains: []farm.Domain{{}}}, Compute},
	} {
		if got := DefaultRole(c.host); got != c.want {
			t.Errorf("%+v is %s, want %s", c.host, got, c.want)
		}
	}
}

// A report must not add percentages up: the documents say that gains are not additive.
func TestNotAdditiveSaysWhy(t *testing.T) {
	for _, word := range []string{"do not add up", "CERN", "5 August 2015"} {
		if !strings.Contains(NotAdditive, word) {
			t.Errorf("%q lacks %q", NotAdditive, word)
		}
	}
}

func TestSparse(t *testing.T) {
	if !(Report{}).Sparse() {
		t.Error("a host that tells nothing is not sparse")
	}
	for _, h := range []farm.HostFacts{{KSM: farm.KSM{Known: true}}, {THP: farm.THP{Enabled: "never"}},
		{Sysctl: map[string]string{"vm.swappiness": "60"}}} {
		if (Report{Host: h}).Sparse() {
			t.Errorf("%+v is sparse", h)
		}
	}
}
