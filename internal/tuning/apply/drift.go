package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Drifted is something that an apply set and that is something else now.
type Drifted struct {
	Run  string // ID of the apply
	Step Step
	Now  State // of the step's target
	Gone bool  // the target does not exist any more
}

func (d Drifted) String() string {
	if d.Gone {
		return d.Step.Target() + ": does not exist any more"
	}
	if d.Step.Kind == StepFile {
		changed := Step{Kind: StepFile, Path: d.Step.Path, Old: d.Step.New, New: d.Now}
		return d.Step.Target() + ": " + d.Step.Show(d.Now) + " since " + d.Run + "\n" +
			strings.TrimSuffix(changed.Diff(), "\n")
	}
	return fmt.Sprintf("%s: set to %s by %s, now %s", d.Step.Target(), d.Step.Show(d.Step.New), d.Run,
		d.Step.Show(d.Now))
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
