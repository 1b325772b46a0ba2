package tune

import (
	"time"

	"github.com/grange-project/grange/internal/tuning"
	"github.com/grange-project/grange/internal/tuning/apply"
)

// What plan, apply, history and drift print with --json. Steps count from 1, as a person sees them.
type (
	planOut struct {
		Findings []wantJSON `json:"findings"`
		Steps    []stepJSON `json:"steps"`
		Blocked  string     `json:"blocked,omitempty"` // why it cannot be made now
	}
	wantJSON struct {
		Rule     string   `json:"rule"`
		Severity string   `json:"severity"`
		Where    string   `json:"where"`
		Wanted   string   `json:"wanted"`
		Got      string   `json:"got"`
		Danger   string   `json:"danger,omitempty"`
		Steps    []int    `json:"steps"`
		Manual   []string `json:"manual,omitempty"`
	}
	stepJSON struct {
		Number int      `json:"number"`
		Kind   string   `json:"kind"`
		Target string   `json:"target"`
		Rules  []string `json:"rules"`
		Text   string   `json:"text"`
		Old    string   `json:"old"`
		New    string   `json:"new"`
		Diff   string   `json:"diff,omitempty"`
		NoVMs  bool     `json:"no_vms,omitempty"`
		Reboot bool     `json:"reboot,omitempty"`
	}
	appliedJSON struct {
		ID        string          `json:"id,omitempty"` // none when there was nothing to do
		Phase     string          `json:"phase,omitempty"`
		Steps     int             `json:"steps"`
		Remaining []remainingJSON `json:"remaining"`
	}
	remainingJSON struct {
		Rule     string `json:"rule"`
		Severity string `json:"severity"`
		Where    string `json:"where"`
		Wanted   string `json:"wanted"`
		Got      string `json:"got"`
		Manual   string `json:"manual,omitempty"`
	}
	historyJSON struct {
		ID    string     `json:"id"`
		At    time.Time  `json:"at"`
		UID   int        `json:"uid"`
		Login int        `json:"login_uid"` // -1 when not known
		Phase string     `json:"phase"`
		Error string     `json:"error,omitempty"`
		Rules []string   `json:"rules"`
		Steps []stepJSON `json:"steps"`
	}
	driftJSON struct {
		Apply  string `json:"apply"`
		Kind   string `json:"kind"`
		Target string `json:"target"`
		Set    string `json:"set"`
		Now    string `json:"now"`
		Gone   bool   `json:"gone,omitempty"`
	}
)

func planJSON(p apply.Plan, blocked error) planOut {
	out := planOut{Findings: []wantJSON{}, Steps: stepsJSON(p.Steps)}
	for _, w := range p.Wants {
		j := wantJSON{Rule: w.Rule, Severity: w.Severity.String(), Where: w.Where, Wanted: w.Wanted, Got: w.Got,
			Steps: []int{}, Manual: w.Manual}
		if rule, err := tuning.RuleByID(w.Rule); err == nil && len(w.Steps) > 0 {
			j.Danger = rule.Danger
		}
		for _, n := range w.Steps {
			j.Steps = append(j.Steps, n+1)
		}
		out.Findings = append(out.Findings, j)
	}
	if blocked != nil {
		out.Blocked = blocked.Error()
	}
	return out
}

func stepsJSON(steps []apply.Step) []stepJSON {
	out := []stepJSON{}
	for i, s := range steps {
		out = append(out, stepJSON{i + 1, string(s.Kind), s.Target(), s.Rules, s.String(), s.Show(s.Old), s.Show(s.New),
			s.Diff(), s.NoVMs, s.Reboot})
	}
	return out
}

func remainingOf(f tuning.Finding) remainingJSON {
	return remainingJSON{f.Rule, f.Severity.String(), f.Where, f.Wanted, f.Got, f.Manual}
}

func runJSON(r *apply.Run) historyJSON {
	return historyJSON{r.ID, r.At, r.Who.UID, r.Who.Login, string(r.Phase), r.Error, r.Plan.Rules(),
		stepsJSON(r.Plan.Steps)}
}

func driftedJSON(d apply.Drifted) driftJSON {
	return driftJSON{d.Run, string(d.Step.Kind), d.Step.Target(), d.Step.Show(d.Step.New), d.Step.Show(d.Now), d.Gone}
}
