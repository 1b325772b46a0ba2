package apply

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning"
)

// Plan is the exact way from what a host is like to what findings want.
type Plan struct {
	Wants []Want `json:",omitempty"` // one for each finding, in their order
	Steps []Step // in the order in which they are made
}

// Rules are those whose findings the steps mend, each once.
func (p Plan) Rules() []string {
	out := []string{}
	for _, s := range p.Steps {
		for _, r := range s.Rules {
			if !slices.Contains(out, r) {
				out = append(out, r)
			}
		}
	}
	return out
}

// Want is one finding, and what mends it.
type Want struct {
	Rule, Where, Wanted, Got string
	Severity                 tuning.Severity
	Steps                    []int    // indices into Plan.Steps
	Manual                   []string // what a person has to do
}

// request is a change that one or several findings ask for.
type request struct {
	tuning.Change
	rules []string
	wants []int
}

// planner collects steps while it reads the host.
type planner struct {
	system   System
	plan     Plan
	requests []request
	wanted   map[string]int // key of a change: index into requests
	from     []map[int]bool // for each step, the wants it serves
}

// NewPlan reads a host and lists the steps that make the changes of all findings. What is there already needs no step.
// Two findings that want different things of one setting are an error that names both.
func NewPlan(ctx context.Context, system System, findings []tuning.Finding) (Plan, error) {
	p := &planner{system: system, wanted: map[string]int{}}
	for i, f := range findings {
		w := Want{Rule: f.Rule, Where: f.Where, Wanted: f.Wanted, Got: f.Got, Severity: f.Severity}
		if f.Manual != "" {
			w.Manual = []string{f.Manual}
		}
		p.plan.Wants = append(p.plan.Wants, w)
		if err := p.collect(i, f); err != nil {
			return Plan{}, err
		}
	}
	if err := p.contradictions(); err != nil {
		return Plan{}, err
	}
	for _, add := range []func(context.Context) error{p.services, p.unmerge, p.values, p.modules, p.tuned, p.boot} {
		if err := add(ctx); err != nil {
			return Plan{}, err
		}
	}
	p.arrange()
	return p.plan, nil
}

// collect takes the changes of one finding, each once.
func (p *planner) collect(want int, f tuning.Finding) error {
	pageSize := ""
	for _, c := range f.Changes {
		if err := checkChange(c); err != nil {
			return fmt.Errorf("rule %s: %w", f.Rule, err)
		}
		if m := paramPath.FindStringSubmatch(c.Path); c.Kind == tuning.SetValue && m != nil {
			builtin, err := p.builtin(m[1])
			if err != nil {
				return err
			}
			if !builtin { // modprobe.d comes in time at boot, before a module has its first user
				c.Kind, c.Path, c.Unit, c.Name = tuning.SetModule, "", m[1], m[2]
			}
		}
		if c.Kind == tuning.SetModule {
			c.Unit = underscored(c.Unit)
		}
		if c.Kind == tuning.SetService {
			c.Unit = strings.TrimSuffix(c.Unit, ".service")
		}
		if c.Kind == tuning.SetBoot && c.Name == "hugepagesz" {
			pageSize = c.Value
		}
		key := keyOf(c, pageSize)
		i, ok := p.wanted[key]
		if !ok {
			p.wanted[key] = len(p.requests)
			p.requests = append(p.requests, request{Change: c, rules: []string{f.Rule}, wants: []int{want}})
			continue
		}
		r := &p.requests[i]
		if r.Remove != c.Remove || !sameValue(r.Value, c.Value) {
			return contradiction(r.rules[0], f.Rule, *r, c)
		}
		r.NoVMs, r.Reboot = r.NoVMs || c.NoVMs, r.Reboot && c.Reboot
		r.wants = append(r.wants, want)
		if !slices.Contains(r.rules, f.Rule) {
			r.rules = append(r.rules, f.Rule)
		}
	}
	return nil
}

// keyOf names the setting that a change is about. Numbers of huge pages on the command line belong to the size before
// them.
func keyOf(c tuning.Change, pageSize string) string {
	switch c.Kind {
	case tuning.SetValue:
		return "value " + c.Path
	case tuning.SetBoot:
		if c.Name == "hugepagesz" || c.Name == "hugepages" {
			return "boot " + c.Name + " " + pageSize
		}
		return "boot " + c.Name
	case tuning.SetModule:
		return "module " + c.Unit + "." + c.Name
	case tuning.SetService:
		return "service " + c.Unit
	case tuning.SetTuned:
		return "tuned " + c.Path + " " + c.Unit + " " + c.Name
	}
	return string(c.Kind)
}

func contradiction(one, other string, a request, b tuning.Change) error {
	return &farm.Error{Kind: farm.Invalid, Code: CodeContradiction,
		Message: fmt.Sprintf("rule %s wants %s, rule %s wants %s", one, describe(a.Change), other, describe(b)),
		Hint:    "choose one with --rule or --skip, or another --profile"}
}

func describe(c tuning.Change) string {
	value := c.Value
	if c.Remove {
		value = "nothing"
	}
	switch c.Kind {
	case tuning.SetValue:
		return fmt.Sprintf("%s in /%s", value, c.Path)
	case tuning.SetModule:
		return fmt.Sprintf("%s of %s.%s", value, c.Unit, c.Name)
	case tuning.SetService:
		return fmt.Sprintf("service %s %s", c.Unit, value)
	case tuning.SetTuned:
		return fmt.Sprintf("%s of %s in /%s", value, c.Name, c.Path)
	case tuning.Unmerge:
		return "KSM's pages taken apart and KSM stopped"
	}
	return fmt.Sprintf("%s of %s on the command line", value, c.Name)
}

// contradictions finds settings that are one though they have two names.
func (p *planner) contradictions() error {
	unmerge, ok := p.wanted["unmerge"]
	if run, also := p.wanted["value "+ksmRun]; ok && also && p.requests[run].Value != "0" {
		return contradiction(p.requests[unmerge].rules[0], p.requests[run].rules[0], p.requests[unmerge],
			p.requests[run].Change)
	}
	for _, r := range p.requests {
		all, ok := poolOf(r.Path)
		if r.Kind != tuning.SetValue || !ok || all.node >= 0 {
			continue
		}
		for _, s := range p.requests {
			if one, ok := poolOf(s.Path); s.Kind == tuning.SetValue && ok && one.node >= 0 && one.size == all.size {
				return contradiction(r.rules[0], s.rules[0], r, s.Change)
			}
		}
	}
	return nil
}

// add appends a step that serves these requests.
func (p *planner) add(s Step, from ...request) {
	p.plan.Steps = append(p.plan.Steps, s)
	p.from = append(p.from, map[int]bool{})
	p.serve(len(p.plan.Steps)-1, from...)
}

// serve notes that a step serves these requests too.
func (p *planner) serve(step int, from ...request) {
	s := &p.plan.Steps[step]
	for _, r := range from {
		for _, rule := range r.rules {
			if !slices.Contains(s.Rules, rule) {
				s.Rules = append(s.Rules, rule)
			}
		}
		for _, w := range r.wants {
			p.from[step][w] = true
		}
	}
}

// manual writes into the findings behind a request what a person has to do.
func (p *planner) manual(r request, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	for _, w := range r.wants {
		if want := &p.plan.Wants[w]; !slices.Contains(want.Manual, text) {
			want.Manual = append(want.Manual, text)
		}
	}
}

// arrange sorts the steps and tells each finding which are its own.
func (p *planner) arrange() {
	index := make([]int, len(p.plan.Steps))
	for i := range index {
		index[i] = i
	}
	slices.SortStableFunc(index, func(a, b int) int { return order(p.plan.Steps[a], p.plan.Steps[b]) })
	steps := make([]Step, len(index))
	for n, i := range index {
		steps[n] = p.plan.Steps[i]
		for _, w := range slices.Sorted(maps.Keys(p.from[i])) {
			p.plan.Wants[w].Steps = append(p.plan.Wants[w].Steps, n)
		}
	}
	p.plan.Steps = steps
}

func (p *planner) services(ctx context.Context) error {
	for _, r := range p.of(tuning.SetService) {
		now, err := p.system.Service(ctx, r.Unit)
		if err != nil {
			return err
		}
		want := now
		switch {
		case r.Value == "on" && !(now.Active && strings.HasPrefix(now.Enabled, "enabled")):
			want.Active = true
			if now.Enabled == "disabled" || now.Enabled == "" {
				want.Enabled = "enabled"
			}
		case r.Value == "off" && now.On():
			want.Active = false
			if strings.HasPrefix(now.Enabled, "enabled") {
				want.Enabled = "disabled"
			}
		}
		switch {
		case want == now:
		case !now.Managed:
			p.manual(r, "turn %s %s with the host's own service manager: systemd does not run it", r.Unit, r.Value)
		default:
			p.add(Step{Kind: StepService, Unit: r.Unit, Old: State{Service: &now}, New: State{Service: &want},
				NoVMs: r.NoVMs}, r)
		}
	}
	return nil
}

func (p *planner) unmerge(context.Context) error {
	for _, r := range p.of(tuning.Unmerge) {
		text, ok, err := p.present(ksmRun)
		if err != nil {
			return err
		}
		if !ok {
			p.manual(r, "this host has no KSM: /%s does not exist", ksmRun)
			continue
		}
		if text != "1" && sharing(p.system.Root()) == 0 {
			continue
		}
		from := []request{r}
		if i, ok := p.wanted["value "+ksmRun]; ok {
			from = append(from, p.requests[i])
		}
		p.add(Step{Kind: StepUnmerge, Path: ksmRun, Old: State{Text: text}, New: State{Text: "0"}, NoVMs: r.NoVMs},
			from...)
	}
	return nil
}

// present reads a value; ok is false when this host does not have it.
func (p *planner) present(path string) (value string, ok bool, err error) {
	info, err := p.system.Root().Stat(path)
	if missing(err) {
		return "", false, nil
	}
	if err == nil && !info.Mode().IsRegular() {
		return "", false, unsafePath(path, "is not a plain file")
	}
	if err != nil {
		return "", false, fmt.Errorf("look at /%s: %w", path, err)
	}
	b, err := readBytes(p.system.Root(), path)
	return chosen(string(b)), err == nil, err
}

// of lists the requests of one kind in the order of the findings.
func (p *planner) of(kind tuning.ChangeKind) []request {
	var out []request
	for _, r := range p.requests {
		if r.Kind == kind {
			out = append(out, r)
		}
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
