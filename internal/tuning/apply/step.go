package apply

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
	"github.com/grange-project/grange/internal/tuning"
)

// StepKind sorts steps by what they touch.
type StepKind string

// Kinds of step.
const (
	StepFile    StepKind = "file"    // a file of /etc becomes New.File
	StepValue   StepKind = "value"   // a file of /sys or /proc/sys reads New.Text
	StepUnmerge StepKind = "unmerge" // KSM's pages are taken apart; then KSM is stopped
	StepModule  StepKind = "module"  // a kernel module is loaded anew with New.Params
	StepService StepKind = "service" // a service is as New.Service says
	StepBoot    StepKind = "boot"    // the boot loader's own files are made anew from those of /etc
)

// Step is one thing to do, with what it finds and what it leaves.
type Step struct {
	Kind   StepKind
	Rules  []string // whose findings it mends
	Path   string   // of a file or value, from the root
	Unit   string   // module or service
	Old    State
	New    State
	NoVMs  bool // waits for the last VM
	Reboot bool // takes effect at the next boot
}

// State is what a step's target is like; each kind of step uses one field.
type State struct {
	Text    string            `json:",omitempty"` // of a value: the chosen word where the kernel lists several
	File    *File             `json:",omitempty"`
	Service *Service          `json:",omitempty"`
	Params  map[string]string `json:",omitempty"` // of a module: those that change
}

// Service is the state of a daemon.
type Service struct {
	Managed bool   // a service manager knows it
	Active  bool   // runs
	Enabled string // as systemctl is-enabled says: "enabled", "disabled", "static"…
}

// On reports that it runs, or will after the next boot.
func (s Service) On() bool { return s.Active || strings.HasPrefix(s.Enabled, "enabled") }

func (s Service) String() string {
	running := "stopped"
	if s.Active {
		running = "running"
	}
	if s.Enabled == "" {
		return running
	}
	return running + ", " + s.Enabled
}

// ksmRun is the file that Unmerge works with.
const ksmRun = "sys/kernel/mm/ksm/run"

var (
	nodePages = lazyregexp.New(
		`^sys/devices/system/node/node(\d{1,4})/hugepages/hugepages-(\d{1,9})kB/nr_hugepages$`)
	hostPages  = lazyregexp.New(`^sys/kernel/mm/hugepages/hugepages-(\d{1,9})kB/nr_hugepages$`)
	paramPath  = lazyregexp.New(`^sys/module/([A-Za-z0-9_]+)/parameters/([A-Za-z0-9_]+)$`)
	valuePath  = lazyregexp.New(`^(sys|proc/sys)/[A-Za-z0-9_./:,+@-]+$`)
	valueText  = lazyregexp.New(`^[\x20-\x7e]+$`)
	unitName   = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9_.@-]*$`)
	moduleName = lazyregexp.New(`^[A-Za-z0-9_]+$`)
	bootName   = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)
	bootValue  = lazyregexp.New(`^[A-Za-z0-9_.,:=/+@-]*$`)
)

const mostName, mostValue = 128, 1000

// pool is which huge pages a value counts. Node is -1 for those of the whole host.
type pool struct {
	node int
	size farm.Bytes
}

func poolOf(path string) (pool, bool) {
	node, kb := "-1", ""
	if m := nodePages.FindStringSubmatch(path); m != nil {
		node, kb = m[1], m[2]
	} else if m := hostPages.FindStringSubmatch(path); m != nil {
		kb = m[1]
	} else {
		return pool{}, false
	}
	n, _ := strconv.Atoi(node)
	k, _ := strconv.Atoi(kb)
	return pool{n, farm.Bytes(k) * farm.KiB}, true
}

// more is how much memory a step adds to a pool of huge pages; negative when it gives some back.
func (s Step) more() int64 {
	p, ok := poolOf(s.Path)
	if s.Kind != StepValue || !ok {
		return 0
	}
	old, _ := strconv.ParseInt(s.Old.Text, 10, 32)
	now, _ := strconv.ParseInt(s.New.Text, 10, 32)
	return (now - old) * int64(p.size)
}

// rank sorts steps so that each finds what it needs. Daemons that would undo it end first; memory is freed before it is
// taken, for pages the large ones before the small; what is read at boot comes when everything else has worked.
func (s Step) rank() int {
	_, pages := poolOf(s.Path)
	switch {
	case s.Kind == StepService && !s.New.Service.On():
		return 0
	case s.Kind == StepUnmerge:
		return 1
	case s.Kind == StepValue && pages && s.more() < 0:
		return 2
	case s.Kind == StepValue && pages:
		return 3
	case s.Kind == StepValue:
		return 4
	case s.Kind == StepFile && isModprobe(s.Path):
		return 5
	case s.Kind == StepModule:
		return 6
	case s.Kind == StepService:
		return 7
	case s.Kind == StepFile:
		return 8
	}
	return 9
}

// order is the order of steps.
func order(a, b Step) int {
	if d := a.rank() - b.rank(); d != 0 {
		return d
	}
	return largePagesFirst(a.Path, b.Path)
}

// largePagesFirst orders pools of huge pages: a large page needs memory in one piece. Other paths come after, in no
// order.
func largePagesFirst(a, b string) int {
	p, _ := poolOf(a)
	q, _ := poolOf(b)
	return cmp.Or(cmp.Compare(q.size, p.size), cmp.Compare(p.node, q.node))
}

// Target names what a step touches: "/sys/kernel/mm/ksm/run", "module kvm_intel", "service numad", "boot loader".
func (s Step) Target() string {
	switch s.Kind {
	case StepModule:
		return "module " + s.Unit
	case StepService:
		return "service " + s.Unit
	case StepBoot:
		return "boot loader"
	}
	return "/" + s.Path
}

// String returns what the step does in one line.
func (s Step) String() string {
	switch s.Kind {
	case StepValue:
		return fmt.Sprintf("%s: %s → %s", s.Target(), s.Old.Text, s.New.Text)
	case StepUnmerge:
		return fmt.Sprintf("%s: %s → 2 → 0, taking merged pages apart", s.Target(), s.Old.Text)
	case StepModule:
		return fmt.Sprintf("%s: load anew with%s", s.Target(), paramChanges(s.Old.Params, s.New.Params))
	case StepService:
		return fmt.Sprintf("%s: %s → %s", s.Target(), s.Old.Service, s.New.Service)
	case StepBoot:
		return s.Target() + ": make its configuration anew"
	}
	switch {
	case s.Old.File == nil:
		return "write " + s.Target()
	case s.New.File == nil:
		return "remove " + s.Target()
	}
	return "change " + s.Target()
}

// Back is the step that takes this one back.
func (s Step) Back() Step {
	s.Old, s.New = s.New, s.Old
	if s.Kind == StepUnmerge { // what was taken apart, KSM merges anew by itself
		s.Kind = StepValue
	}
	return s
}

// Show is a state of the step's target in a few words.
func (s Step) Show(state State) string {
	switch {
	case s.Kind == StepFile && state.File == nil:
		return "no file"
	case s.Kind == StepFile:
		return fmt.Sprintf("%d bytes, %s", len(state.File.Data), state.File.Mode)
	case state.Service != nil:
		return state.Service.String()
	case s.Kind == StepModule:
		var words []string
		for _, name := range sortedKeys(state.Params) {
			words = append(words, name+"="+state.Params[name])
		}
		return strings.Join(words, " ")
	}
	return state.Text
}

func paramChanges(old, now map[string]string) string {
	var b strings.Builder
	for _, name := range sortedKeys(now) {
		fmt.Fprintf(&b, " %s: %s → %s", name, old[name], now[name])
	}
	return b.String()
}

// Diff is the change of a file as `diff -u` writes it; "" for other steps.
func (s Step) Diff() string {
	if s.Kind != StepFile {
		return ""
	}
	old, now := "/"+s.Path, "/"+s.Path
	if s.Old.File == nil {
		old = "/dev/null"
	}
	if s.New.File == nil {
		now = "/dev/null"
	}
	return fmt.Sprintf("--- %s\n+++ %s\n%s", old, now, unified(s.Old.File.text(), s.New.File.text()))
}

// chosen is the value of a file of /sys: the word in brackets where the kernel lists all words that it takes.
func chosen(text string) string {
	text = strings.TrimSpace(strings.Trim(text, "\x00"))
	if _, rest, ok := strings.Cut(text, "["); ok {
		if word, _, ok := strings.Cut(rest, "]"); ok {
			return word
		}
	}
	return text
}

// sameValue reports whether two values mean the same: the kernel shows Y for what was written as 1.
func sameValue(a, b string) bool {
	if a == b {
		return true
	}
	x, okX := truth(a)
	y, okY := truth(b)
	if okX && okY {
		return x == y
	}
	m, errA := strconv.ParseInt(a, 0, 64)
	n, errB := strconv.ParseInt(b, 0, 64)
	return errA == nil && errB == nil && m == n
}

func truth(s string) (on, ok bool) {
	switch s {
	case "Y", "y", "1":
		return true, true
	case "N", "n", "0":
		return false, true
	}
	return false, false
}

// checkChange refuses what no host has, and what would end up as something else in a file of /etc.
func checkChange(c tuning.Change) error {
	bad := func(what string) error {
		return &farm.Error{Kind: farm.Invalid, Code: CodeBadChange, Message: what,
			Hint: "this is a mistake in the rule; report it"}
	}
	// Counted by the patterns themselves, this would cost milliseconds at each start of grange.
	if len(c.Name) > mostName || len(c.Unit) > mostName || len(c.Value) > mostValue {
		return bad(fmt.Sprintf("%.40q, %.40q, %.40q: too long", c.Name, c.Unit, c.Value))
	}
	switch c.Kind {
	case tuning.SetValue:
		if !valuePath.MatchString(c.Path) || strings.Contains("/"+c.Path+"/", "/../") ||
			strings.Contains(c.Path, "//") {
			return bad(fmt.Sprintf("%q is not a path in /sys or /proc/sys", c.Path))
		}
		if !valueText.MatchString(c.Value) || strings.TrimSpace(c.Value) != c.Value {
			return bad(fmt.Sprintf("invalid value %q for /%s", c.Value, c.Path))
		}
	case tuning.SetBoot:
		if !bootName.MatchString(c.Name) || !bootValue.MatchString(c.Value) {
			return bad(fmt.Sprintf("%q is not a parameter of the kernel's command line", c.Name+"="+c.Value))
		}
	case tuning.SetModule:
		if !moduleName.MatchString(underscored(c.Unit)) || !moduleName.MatchString(c.Name) ||
			!bootValue.MatchString(c.Value) || c.Value == "" {
			return bad(fmt.Sprintf("%q is not an option of module %q", c.Name+"="+c.Value, c.Unit))
		}
	case tuning.SetService:
		if !unitName.MatchString(c.Unit) || c.Value != "on" && c.Value != "off" {
			return bad(fmt.Sprintf("service %q cannot be %q", c.Unit, c.Value))
		}
	case tuning.SetTuned:
		if !tunedFile.MatchString(c.Path) || !tunedSection.MatchString(c.Unit) || !tunedOption.MatchString(c.Name) ||
			!valueText.MatchString(c.Value) || strings.ContainsAny(c.Value, "#$") {
			return bad(fmt.Sprintf("%q is not an option of section %q of a tuned profile /%s", c.Name+"="+c.Value,
				c.Unit, c.Path))
		}
	case tuning.Unmerge:
	default:
		return bad(fmt.Sprintf("invalid kind of change %q", c.Kind))
	}
	return nil
}

// underscored is a module's name as the kernel has it; modprobe takes dashes too.
func underscored(module string) string { return strings.ReplaceAll(module, "-", "_") }
