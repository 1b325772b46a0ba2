package apply

import (
	"context"
	"slices"
)

// Drifted is something that an apply set and that is something else now.
type Drifted struct {
	Run  string // ID of the apply
	Step Step
	Now  State // of the step's target
	Gone bool  // the target does not exist any more
}

// Drift compares what is there with what was applied and not undone. Of several applies the last one counts.
func Drift(ctx context.Context, system System) ([]Drifted, error) {
	runs, err := History(system.Root())
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	var out []Drifted
	for _, r := range slices.Backward(runs) {
		if r.Phase != Applied {
			continue
		}
		for _, s := range r.Plan.Steps {
			if seen[s.Target()] || s.Kind == StepBoot {
				continue
			}
			seen[s.Target()] = true
			now, err := present(ctx, system, s)
			switch {
			case missing(err):
				out = append(out, Drifted{Run: r.ID, Step: s, Gone: true})
			case err != nil:
				return nil, err
			case !same(s.Kind, now, s.New):
				out = append(out, Drifted{Run: r.ID, Step: s, Now: now})
			}
		}
	}
	return out, nil
}
