// Package policy decides what a job may have on this host: which image, shape and network, how much, and what the site
// adds. It is pure: rules, who asks and what for go in; a decision and the reasons for it come out. It starts nothing
// and looks nothing up.
package policy

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// Rule is one entry of a site's policy: whom it is for, and what it says of them. Rules are asked in order, and for
// each setting the first one counts that matches and says anything of it; so narrow rules come first, and one for
// everybody last.
type Rule struct {
	Name string // for people; never empty

	// Whom the rule is for: all of these that are not empty must match. All but Systems are patterns as path.Match has
	// them, and users and groups match by name or by number.
	Users, Groups, Accounts, Queues []string
	Systems                         []string // batch systems; "none": outside of batch jobs

	Image    string   // for jobs that name none
	Images   []string // patterns of those that a job may name; empty: the rule says nothing of it
	Shape    string
	Shapes   []string
	Network  string
	Networks []string
	Binds    []string // directories that every batch job's VM gets, as `--bind` takes them
	Mounts   []string // patterns of places in the VM where a job may bind directories of its own; see allowedMount

	Gateways []farm.Gateway // by which binds may come into the VM; empty: the rule says nothing of it

	OneFilesystem *bool // a bound directory shows nothing that is mounted below it

	MaxCPUs    int        // 0: the rule says nothing of it
	MaxMemory  farm.Bytes // likewise
	MaxScratch *farm.Bytes

	Deny string // not empty: these jobs get no VM, for this reason
}

// NoSystem stands in Rule.Systems for callers outside of batch jobs.
const NoSystem = "none"

// Who is a caller, as the kernel and the batch system identify it.
type Who struct {
	User    string
	UID     uint32
	Groups  []string // by name, where they have one
	GIDs    []uint32
	System  farm.BatchSystem // "": no batch job
	Account string           // "": none
	Queue   string           // "": none
}

// Wish is what a job asks for; what is empty it leaves to the site.
type Wish struct {
	Image, Shape, Network string
	SiteNetwork           bool // Network is the site's: only a rule that names it lets a job have it
	CPUs                  int
	Memory                farm.Bytes
	Scratch               farm.Bytes
	Mounts                []string       // places in the VM
	Gateways              []farm.Gateway // of each of them
}

// Decision is what the job gets. A limit of 0, or nil, is none.
type Decision struct {
	Image, Shape, Network string
	Binds                 []string
	MaxCPUs               int
	MaxMemory             farm.Bytes
	MaxScratch            *farm.Bytes
	OneFilesystem         bool
	Gateways              []farm.Gateway // that binds may have; nil: all
	Reasons               []string       // one a setting: what it is, and which rule set it

	memoryRule, cpuRule, scratchRule string
}

// NeedsQueue reports whether any rule looks at what only the batch system knows of its jobs.
func NeedsQueue(rules []Rule) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool { return len(r.Accounts)+len(r.Queues) > 0 })
}

// NeedsUser reports whether any rule looks at users or groups, by name or by number.
func NeedsUser(rules []Rule) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool { return len(r.Users)+len(r.Groups) > 0 })
}

// NeedsNames reports whether any rule looks at users, or at groups, in another way than by number.
func NeedsNames(rules []Rule) (users, groups bool) {
	named := func(pattern string) bool {
		return strings.ContainsFunc(pattern, func(r rune) bool { return r < '0' || r > '9' })
	}
	for _, r := range rules {
		users = users || slices.ContainsFunc(r.Users, named)
		groups = groups || slices.ContainsFunc(r.Groups, named)
	}
	return users, groups
}

// Decide applies the rules. Its error is a *farm.Error that names the rule which refuses.
func Decide(rules []Rule, who Who, wish Wish) (Decision, error) {
	d := Decision{Image: wish.Image, Shape: wish.Shape, Network: wish.Network}
	var mine []Rule
	for _, r := range rules {
		if r.Matches(who) {
			mine = append(mine, r)
		}
	}
	for _, r := range mine {
		if r.Deny != "" {
			return d, &farm.Error{Kind: farm.Denied, Code: farm.CodePolicy, Hint: "ask the site",
				Message: fmt.Sprintf("rule %q of this host's policy gives this job no VM: %s", r.Name, r.Deny)}
		}
	}
	var err error
	for _, s := range []struct {
		what    string
		value   *string
		usual   func(Rule) string
		allowed func(Rule) []string
	}{
		{"image", &d.Image, func(r Rule) string { return r.Image }, func(r Rule) []string { return r.Images }},
		{"shape", &d.Shape, func(r Rule) string { return r.Shape }, func(r Rule) []string { return r.Shapes }},
		{"network", &d.Network, func(r Rule) string { return r.Network }, func(r Rule) []string { return r.Networks }},
	} {
		if *s.value, err = d.choose(mine, s.what, *s.value, s.usual, s.allowed); err != nil {
			return d, err
		}
	}
	if err := allowSite(mine, wish); err != nil {
		return d, err
	}
	if r, ok := first(mine, func(r Rule) bool { return len(r.Binds) > 0 }); ok {
		d.Binds = r.Binds
		d.because("binds "+strings.Join(r.Binds, " "), r)
	}
	if err := allowMounts(mine, wish.Mounts, d.Binds); err != nil {
		return d, err
	}
	if r, ok := first(mine, func(r Rule) bool { return r.OneFilesystem != nil }); ok && *r.OneFilesystem {
		d.OneFilesystem = true
		d.because("binds without what is mounted below them", r)
	}
	if err := d.allowGateways(mine, wish.Gateways); err != nil {
		return d, err
	}
	d.limit(mine)
	return d, d.within(wish)
}

// choose is the job's own word where the rules let it, and the site's where it said nothing. What the site itself gives
// needs no leave.
func (d *Decision) choose(mine []Rule, what, wish string, usual func(Rule) string,
	allowed func(Rule) []string) (string, error) {
	giver, given := first(mine, func(r Rule) bool { return usual(r) != "" })
	if wish == "" {
		if !given {
			return "", nil
		}
		d.because(what+" "+usual(giver), giver)
		return usual(giver), nil
	}
	guard, guarded := first(mine, func(r Rule) bool { return len(allowed(r)) > 0 })
	if guarded && !matchesAny(allowed(guard), wish) && !(given && usual(giver) == wish) {
		return "", denied(guard, "%s %q; there %s %s", what, wish, are(allowed(guard)),
			strings.Join(allowed(guard), ", "))
	}
	d.Reasons = append(d.Reasons, what+" "+wish+": the job's own wish")
	return wish, nil
}

// allowSite refuses a network of the site that no rule names: its addresses are not everybody's.
func allowSite(mine []Rule, w Wish) error {
	names := func(r Rule) bool { return r.Network == w.Network || matchesAny(r.Networks, w.Network) }
	if !w.SiteNetwork || slices.ContainsFunc(mine, names) {
		return nil
	}
	return &farm.Error{Kind: farm.Denied, Code: farm.CodePolicy,
		Message: fmt.Sprintf("no rule of this host's policy gives this job network %q", w.Network),
		Hint:    "leave --network out, or ask the site"}
}

func are(list []string) string {
	if len(list) == 1 {
		return "is"
	}
	return "are"
}

// allowMounts holds the places that a job binds against the rules. Those that the site binds need no leave.
func allowMounts(mine []Rule, mounts, binds []string) error {
	guard, guarded := first(mine, func(r Rule) bool { return len(r.Mounts) > 0 })
	let := slices.Clone(guard.Mounts)
	for _, b := range binds {
		let = append(let, place(b))
	}
	for _, m := range mounts {
		if guarded && !allowedMount(let, m) {
			return denied(guard, "a directory bound at %s; it lets through %s", m, strings.Join(guard.Mounts, ", "))
		}
	}
	return nil
}

// allowGateways holds the gateways that binds name against the rules.
func (d *Decision) allowGateways(mine []Rule, asked []farm.Gateway) error {
	guard, guarded := first(mine, func(r Rule) bool { return len(r.Gateways) > 0 })
	if !guarded || len(asked) == 0 {
		return nil
	}
	for _, g := range asked {
		if g != "" && g != farm.AnyGateway && !slices.Contains(guard.Gateways, g) {
			return denied(guard, "the gateway %q; it allows %v", string(g), guard.Gateways)
		}
	}
	d.Gateways = guard.Gateways
	d.because(fmt.Sprintf("gateways %v", guard.Gateways), guard)
	return nil
}

// place is where a bind is in the VM.
func place(bind string) string {
	b, err := farm.ParseBind(bind)
	if err != nil {
		return "" // the configuration was refused for it
	}
	return b.Place()
}

// allowedMount lets through a place that a pattern matches, and all below it.
func allowedMount(patterns []string, place string) bool {
	for p := path.Clean(place); ; p = path.Dir(p) {
		if matchesAny(patterns, p) {
			return true
		}
		if p == "/" || p == "." {
			return false
		}
	}
}

func (d *Decision) limit(mine []Rule) {
	if r, ok := first(mine, func(r Rule) bool { return r.MaxCPUs > 0 }); ok {
		d.MaxCPUs, d.cpuRule = r.MaxCPUs, r.Name
		d.because(fmt.Sprintf("at most %d CPUs", r.MaxCPUs), r)
	}
	if r, ok := first(mine, func(r Rule) bool { return r.MaxMemory > 0 }); ok {
		d.MaxMemory, d.memoryRule = r.MaxMemory, r.Name
		d.because(fmt.Sprintf("at most %v of memory", r.MaxMemory), r)
	}
	if r, ok := first(mine, func(r Rule) bool { return r.MaxScratch != nil }); ok {
		d.MaxScratch, d.scratchRule = r.MaxScratch, r.Name
		d.because(fmt.Sprintf("at most %v of scratch", *r.MaxScratch), r)
	}
}

// within refuses wishes beyond the limits. What nobody asked for is cut by whoever fills it in; Cut does so for a
// shape.
func (d *Decision) within(w Wish) error {
	switch {
	case d.MaxCPUs > 0 && w.CPUs > d.MaxCPUs:
		return denied(Rule{Name: d.cpuRule}, "%d CPUs; at most %d", w.CPUs, d.MaxCPUs)
	case d.MaxMemory > 0 && w.Memory > d.MaxMemory:
		return denied(Rule{Name: d.memoryRule}, "%v of memory; at most %v", w.Memory, d.MaxMemory)
	case d.MaxScratch != nil && w.Scratch > *d.MaxScratch:
		return denied(Rule{Name: d.scratchRule}, "%v of scratch; at most %v", w.Scratch, *d.MaxScratch)
	}
	return nil
}

// CheckDisks refuses a shape whose disks take more than the decision allows: what Cut leaves, and what memory lacks.
func (d *Decision) CheckDisks(s farm.Shape) error {
	if all := s.DiskSpace(); d.MaxScratch != nil && all > *d.MaxScratch {
		return denied(Rule{Name: d.scratchRule}, "%v of disks; at most %v", all, *d.MaxScratch)
	}
	return nil
}

// Cut makes the shape no larger than the decision allows. Wishes beyond the limits were refused by Decide.
func (d *Decision) Cut(s farm.Shape) farm.Shape {
	if d.MaxCPUs > 0 {
		s.CPUs = min(s.CPUs, d.MaxCPUs)
	}
	if d.MaxMemory > 0 {
		s.Memory = min(s.Memory, d.MaxMemory)
	}
	if d.MaxScratch != nil {
		s.Scratch = min(s.Scratch, *d.MaxScratch)
	}
	return s
}

func (d *Decision) because(what string, r Rule) {
	d.Reasons = append(d.Reasons, fmt.Sprintf("%s: rule %q", what, r.Name))
}

func denied(r Rule, format string, args ...any) error {
	return &farm.Error{Kind: farm.Denied, Code: farm.CodePolicy,
		Message: fmt.Sprintf("rule %q of this host's policy does not allow ", r.Name) + fmt.Sprintf(format, args...),
		Hint:    "ask for something else, or ask the site"}
}

func first(rules []Rule, says func(Rule) bool) (Rule, bool) {
	if i := slices.IndexFunc(rules, says); i >= 0 {
		return rules[i], true
	}
	return Rule{}, false
}

// Matches reports whether a rule is for somebody.
func (r Rule) Matches(w Who) bool {
	system := string(w.System)
	if system == "" {
		system = NoSystem
	}
	if len(r.Systems) > 0 && !slices.Contains(r.Systems, system) {
		return false
	}
	groups := slices.Clone(w.Groups)
	for _, gid := range w.GIDs {
		groups = append(groups, number(gid))
	}
	return holds(r.Users, w.User, number(w.UID)) && holds(r.Groups, groups...) && holds(r.Accounts, w.Account) &&
		holds(r.Queues, w.Queue)
}

func number(id uint32) string { return strconv.FormatUint(uint64(id), 10) }

// holds reports whether one of the words matches one of the patterns. No pattern is no condition, and nothing is not a
// word.
func holds(patterns []string, words ...string) bool {
	if len(patterns) == 0 {
		return true
	}
	return slices.ContainsFunc(words, func(w string) bool { return w != "" && matchesAny(patterns, w) })
}

func matchesAny(patterns []string, word string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, word)
		return ok &&
			err == nil
	})
}

// Validate refuses a rule that makes no sense on its own. systems are the batch systems that it may name.
func (r Rule) Validate(systems []farm.BatchSystem) error {
	for _, list := range [][]string{r.Users, r.Groups, r.Accounts, r.Queues, r.Images, r.Shapes, r.Networks, r.Mounts} {
		for _, p := range list {
			if _, err := path.Match(p, ""); err != nil || p == "" {
				return fmt.Errorf("invalid pattern %q", p)
			}
		}
	}
	for _, s := range r.Systems {
		if s != NoSystem && !slices.Contains(systems, farm.BatchSystem(s)) {
			return fmt.Errorf("no batch system %q; there are %v, and none", s, systems)
		}
	}
	for _, m := range append(slices.Clone(r.Mounts), r.Binds...) {
		if !path.IsAbs(m) {
			return fmt.Errorf("%q is not an absolute path", m)
		}
	}
	for _, g := range r.Gateways {
		if !slices.Contains(farm.Gateways, g) {
			return fmt.Errorf("gateways: %q is not one of %v", string(g), farm.Gateways)
		}
	}
	if r.MaxCPUs < 0 {
		return fmt.Errorf("max_cpus: %d", r.MaxCPUs)
	}
	return nil
}
