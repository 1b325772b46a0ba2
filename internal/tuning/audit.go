package tuning

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// NotAdditive is why a report has no total.
const NotAdditive = "Costs are of single settings, each measured on its own load. They do not add up: CERN says so " +
	"of its own figures " + "(Tuning hypervisors for High Throughput Computing, 5 August 2015), and no sum is given " +
	"here."

// Report is what an audit found on one host.
type Report struct {
	Host    farm.HostFacts
	Role    Role
	Profile Profile
	Results []Result // the most severe first, then in the order of Rules
	Skipped []Skip
	Applied int // rules that were asked
}

// Result is one rule that found something.
type Result struct {
	Rule     Rule
	Severity Severity // the highest of its findings
	Findings []Finding
}

// Skip is a rule that was not asked, and why.
type Skip struct {
	Rule   Rule
	Reason string
}

// Options choose rules. Unknown names are a *farm.Error with farm.CodeNoRule.
type Options struct {
	Only []string // IDs of rules; empty means all
	Skip []string
}

// Audit asks every rule that holds for the role and has something to look at. Rules without a source are left out: what
// has no evidence is no advice.
func Audit(h farm.HostFacts, p Profile, role Role, o Options) (Report, error) {
	return audit(hostRules(), vmRules(), h, p, role, o)
}

func audit(ofHost, ofVMs []Rule, h farm.HostFacts, p Profile, role Role, o Options) (Report, error) {
	rules := slices.Concat(ofHost, ofVMs)
	for _, id := range slices.Concat(o.Only, o.Skip) {
		if _, err := ruleIn(rules, id); err != nil {
			return Report{}, err
		}
	}
	r := Report{Host: h, Role: role, Profile: p}
	for i, rule := range rules {
		reason := notAsked(rule, role, o)
		if reason == "" && i >= len(ofHost) && role != Guest && len(h.Domains) == 0 {
			reason = "no VM is described here"
		}
		if reason != "" {
			r.Skipped = append(r.Skipped, Skip{rule, reason})
			continue
		}
		r.Applied++
		if result, found := ask(rule, h, p); found {
			r.Results = append(r.Results, result)
		}
	}
	slices.SortStableFunc(r.Results, func(a, b Result) int { return int(b.Severity - a.Severity) })
	return r, nil
}

func notAsked(rule Rule, role Role, o Options) string {
	switch {
	case len(rule.Sources) == 0:
		return "has no evidence"
	case slices.Contains(o.Skip, rule.ID):
		return "left out by --skip"
	case len(o.Only) > 0 && !slices.Contains(o.Only, rule.ID):
		return "not among those asked for"
	case !rule.For(role):
		return fmt.Sprintf("does not hold for a host of role %s", role)
	}
	return ""
}

func ask(rule Rule, h farm.HostFacts, p Profile) (Result, bool) {
	result := Result{Rule: rule, Findings: rule.Check(h, p)}
	for i := range result.Findings {
		f := &result.Findings[i]
		f.Rule = rule.ID
		if f.Severity == 0 {
			f.Severity = rule.Severity
		}
		result.Severity = max(result.Severity, f.Severity)
	}
	slices.SortStableFunc(result.Findings, func(a, b Finding) int { return int(b.Severity - a.Severity) })
	return result, len(result.Findings) > 0
}

// Findings are all findings, in the order of Results.
func (r Report) Findings() []Finding {
	var all []Finding
	for _, result := range r.Results {
		all = append(all, result.Findings...)
	}
	return all
}

// Count is how many findings have a severity.
func (r Report) Count(s Severity) int {
	n := 0
	for _, f := range r.Findings() {
		if f.Severity == s {
			n++
		}
	}
	return n
}

// Worst is the highest severity found; 0 where nothing was.
func (r Report) Worst() Severity {
	var worst Severity
	for _, result := range r.Results {
		worst = max(worst, result.Severity)
	}
	return worst
}

// Sparse reports whether the host tells next to nothing beside its topology, as old recordings do: that nothing was
// found means little then.
func (r Report) Sparse() bool {
	h := r.Host
	return !h.KSM.Known && h.THP.Enabled == "" && len(h.Sysctl) == 0 && len(h.KVM.Params) == 0 && len(h.Counters) == 0
}

// SparseNote says so.
const SparseNote = "This host reports little beside its topology, so most rules had nothing to look at."

// DefaultRole is guest for a virtual machine that runs none itself, and compute for anything else.
func DefaultRole(h farm.HostFacts) Role {
	hypervisor := h.KVM.Loaded || h.Versions.QEMU != "" || h.Versions.Libvirt != "" || len(h.Domains) > 0
	if h.Virtual && !hypervisor {
		return Guest
	}
	return Compute
}

// RuleByID is one rule. The error for an ID that is none names the nearest.
func RuleByID(id string) (Rule, error) { return ruleIn(Rules(), id) }

func ruleIn(rules []Rule, id string) (Rule, error) {
	nearest, best := "", 1<<30
	for _, r := range rules {
		if r.ID == id {
			return r, nil
		}
		n := distance(id, r.ID)
		if id != "" && (strings.Contains(r.ID, id) || strings.Contains(id, r.ID)) {
			n = min(n, 2)
		}
		if n < best {
			nearest, best = r.ID, n
		}
	}
	hint := "`grange tune rules` lists them"
	if best <= max(2, len(id)/2) {
		hint = fmt.Sprintf("did you mean %s? `grange tune rules` lists them all", nearest)
	}
	return Rule{}, &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoRule,
		Message: fmt.Sprintf("no rule %q", id), Hint: hint}
}

// distance is Levenshtein's, of short texts; longer ones count as far.
func distance(a, b string) int {
	if len(a) > 100 || len(b) > 100 {
		return 1 << 20
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// HostState is how a host is tuned: which rules find something of it. What is found of single VMs is theirs.
type HostState struct {
	Digest   string // of what is found where: the same for as long as the host is tuned alike
	Findings []farm.HostFinding
}

// Places is how many findings there are, of all rules.
func (s HostState) Places() (n int) {
	for _, f := range s.Findings {
		n += f.Places
	}
	return n
}

// State is how a host is tuned, by the profile and the role that fit it.
func State(h farm.HostFacts) (s HostState, err error) {
	role := DefaultRole(h)
	r, err := Audit(h, Choose(h, role), role, Options{})
	if err != nil {
		return s, err
	}
	return stateOf(r), nil
}

func stateOf(r Report) (s HostState) {
	var found []string
	for _, result := range r.Results {
		places, worst := 0, Severity(0)
		for _, f := range result.Findings {
			if strings.HasPrefix(f.Where, "VM ") {
				continue
			}
			found = append(found, f.Rule+" "+f.Where)
			places, worst = places+1, max(worst, f.Severity)
		}
		if places > 0 {
			s.Findings = append(s.Findings, farm.HostFinding{Rule: result.Rule.ID, Severity: worst.String(),
				Places: places})
		}
	}
	slices.Sort(found)
	sum := sha256.Sum256([]byte(strings.Join(found, "\n")))
	s.Digest = hex.EncodeToString(sum[:6])
	slices.SortFunc(s.Findings, func(a, b farm.HostFinding) int { return strings.Compare(a.Rule, b.Rule) })
	return s
}
