package hostfacts

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
)

// Where tuned looks for profiles, the first that has one counts. Those in /etc stand in for packaged ones of the same
// name, and may include them by that name.
var tunedDirs = []string{"etc/tuned/profiles", "usr/lib/tuned/profiles", "etc/tuned", "usr/lib/tuned"}

const mostTunedProfiles = 32 // that one includes

var (
	tunedName     = lazyregexp.New(`^[A-Za-z0-9_.-]+$`)
	tunedVariable = lazyregexp.New(`\$\{(\w+)\}`)
)

// tunedUnit is a section of a profile, merged from all that the active one includes.
type tunedUnit struct {
	name, kind   string
	enabled      bool
	devices      string
	cpu, machine string            // expressions that /proc/cpuinfo and uname have to match
	names        []string          // of options, in their order
	options      map[string]string // as they are written
}

// tuned is the daemon that applies profiles.
type tuned struct{ *reader }

// settings reads what tuned's active profile sets each time the daemon starts, as far as rules know these settings.
// Settings that depend on tuned's own functions are left out.
func (r tuned) settings() []farm.TunedSetting {
	names := slices.DeleteFunc(strings.Fields(r.word("etc/tuned/active_profile")),
		func(n string) bool { return !tunedName.MatchString(n) })
	if len(names) == 0 {
		return nil
	}
	t := tunedProfile{r: r.reader, variables: map[string]string{}}
	t.load(names)
	last := names[len(names)-1]
	own := path.Join("etc/tuned", last, "tuned.conf")
	if r.Exists("usr/lib/tuned/profiles") || r.Exists("etc/tuned/profiles") { // from 2.23 on
		own = path.Join("etc/tuned/profiles", last, "tuned.conf")
	}
	var later map[string][]farm.PagesSetting // tuned applies sysctl.d behind its own values
	if r.reapplies() {
		later = r.sysctlSettings()
	}
	var out []farm.TunedSetting
	for _, u := range t.units {
		if !u.enabled || !t.matches(u) {
			continue
		}
		for _, option := range u.names {
			value, known := t.expand(u.options[option])
			for _, target := range r.targets(u.kind, option) {
				if value = strings.TrimSpace(strings.Trim(value, `"`)); known {
					out = append(out, farm.TunedSetting{Path: target, Value: value, File: own, Unit: u.name,
						Option: option, Plain: u.name == u.kind && u.devices == "",
						Overruled: u.kind == "sysctl" && len(later[option]) > 0})
				}
			}
		}
	}
	return out
}

// targets is what an option of a plug-in writes to, as path.Match takes it.
func (r tuned) targets(kind, option string) []string {
	const pages = "sys/kernel/mm/transparent_hugepage/"
	switch {
	case kind == "vm" && (option == "transparent_hugepages" || option == "transparent_hugepage"):
		if strings.Contains(r.word("proc/cmdline"), "transparent_hugepage=") {
			return nil // tuned leaves it to the command line
		}
		return []string{pages + "enabled"}
	case kind == "vm" && option == "transparent_hugepage.defrag":
		return []string{pages + "defrag"}
	case kind == "cpu" && option == "governor":
		return []string{"sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"}
	case kind == "sysfs" && strings.HasPrefix(path.Clean(option), "/sys/"):
		return []string{strings.TrimPrefix(path.Clean(option), "/")}
	case kind == "bootloader" && strings.HasPrefix(option, "cmdline"):
		return []string{"proc/cmdline"}
	case kind == "sysctl":
		return []string{"proc/sys/" + strings.ReplaceAll(option, ".", "/")}
	}
	return nil
}

// reapplies reports whether files of sysctl.d win over profiles, as they do unless tuned is told otherwise.
func (r tuned) reapplies() bool {
	for _, line := range r.lines("etc/tuned/tuned-main.conf") {
		if name, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(name) == "reapply_sysctl" {
			return slices.Contains([]string{"1", "true", "yes", "y", "t"}, strings.ToLower(strings.TrimSpace(value)))
		}
	}
	return true
}

// tunedProfile is a profile with all that it includes.
type tunedProfile struct {
	r         *reader
	files     []string
	units     []*tunedUnit
	variables map[string]string
}

func (t *tunedProfile) load(names []string) {
	for _, name := range names {
		file := t.find(strings.TrimPrefix(strings.TrimSpace(name), "-"))
		if file == "" || len(t.files) == mostTunedProfiles {
			continue
		}
		t.files = append(t.files, file)
		units := t.parse(file)
		for _, u := range units {
			if include, ok := u.options["include"]; ok && u.name == "main" {
				if include, ok = t.expand(include); ok {
					t.load(strings.FieldsFunc(include, func(c rune) bool { return c == ',' || c == ';' }))
				}
			}
		}
		for _, u := range units {
			t.merge(u)
		}
	}
}

// find is the first file of a profile that was not read yet: so a profile may include the one that it stands in for.
func (t *tunedProfile) find(name string) string {
	if !tunedName.MatchString(name) {
		return ""
	}
	for _, dir := range tunedDirs {
		if file := path.Join(dir, name, "tuned.conf"); t.r.Exists(file) && !slices.Contains(t.files, file) {
			return file
		}
	}
	return ""
}

// parse reads the sections of a file, each once. Names that tuned keeps for itself are no options.
func (t *tunedProfile) parse(file string) []*tunedUnit {
	var out []*tunedUnit
	var unit *tunedUnit
	for _, line := range t.r.lines(file) {
		if name, ok := strings.CutPrefix(line, "["); ok && strings.HasSuffix(name, "]") {
			name = strings.TrimSuffix(name, "]")
			i := slices.IndexFunc(out, func(u *tunedUnit) bool { return u.name == name })
			if i < 0 {
				i, out = len(out), append(out, &tunedUnit{name: name, options: map[string]string{}})
			}
			unit = out[i]
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if unit == nil || !ok || line[0] == ';' {
			continue
		}
		if i := strings.Index(value, " #"); i >= 0 {
			value = value[:i]
		}
		unit.set(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return out
}

func (u *tunedUnit) set(name, value string) {
	if _, ok := u.options[name]; !ok {
		u.names = append(u.names, name)
	}
	u.options[name] = value
}

func (u *tunedUnit) take(name string) (string, bool) {
	value, ok := u.options[name]
	delete(u.options, name)
	u.names = slices.DeleteFunc(u.names, func(n string) bool { return n == name })
	return value, ok
}

// merge lays a unit over those of the same name of profiles before, as tuned does.
func (t *tunedProfile) merge(u *tunedUnit) {
	switch u.name {
	case "main":
		return
	case "variables":
		for _, name := range u.names {
			if value, ok := t.expand(u.options[name]); ok {
				t.variables[name] = value
			}
		}
		return
	}
	truth := func(value string) bool { return value == "True" || value == "true" || value == "1" }
	kind, _ := u.take("type")
	enabled, given := u.take("enabled")
	replace, _ := u.take("replace")
	devices, _ := u.take("devices")
	cpu, hasCPU := u.take("cpuinfo_regex")
	machine, hasMachine := u.take("uname_regex")
	drop, _ := u.take("drop")
	i := slices.IndexFunc(t.units, func(o *tunedUnit) bool { return o.name == u.name })
	if i < 0 {
		i, t.units = len(t.units), append(t.units, &tunedUnit{name: u.name, options: map[string]string{}})
	} else if truth(replace) {
		t.units[i] = &tunedUnit{name: u.name, options: map[string]string{}}
	}
	now := t.units[i]
	now.kind, now.enabled, now.devices = u.name, !given || truth(enabled), strings.TrimSpace(strings.Trim(devices, "*"))
	if kind != "" {
		now.kind = kind
	}
	if hasCPU {
		now.cpu = cpu
	}
	if hasMachine {
		now.machine = machine
	}
	for _, name := range strings.FieldsFunc(drop, func(c rune) bool { return c == ',' || c == ';' || c == ' ' }) {
		now.take(name)
	}
	for _, name := range u.names {
		now.set(name, u.options[name])
	}
}

// expand puts variables in. ok is false where something is left that only tuned knows.
func (t *tunedProfile) expand(text string) (string, bool) {
	text = tunedVariable.ReplaceAllStringFunc(text, func(word string) string {
		if value, ok := t.variables[tunedVariable.FindStringSubmatch(word)[1]]; ok {
			return value
		}
		return word
	})
	return text, !strings.Contains(text, "${")
}

// matches reports whether a unit is for this machine. One whose expressions we cannot read is taken for another's.
func (t *tunedProfile) matches(u *tunedUnit) bool {
	if u.cpu == "" && u.machine == "" {
		return true
	}
	cpus, _ := t.r.Large("proc/cpuinfo")
	machine := "Linux " + t.r.hostName() + " " + t.r.word("proc/sys/kernel/osrelease") + " " +
		t.r.word("proc/sys/kernel/version") + " x86_64"
	for _, m := range []struct{ expression, text string }{{u.cpu, cpus}, {u.machine, machine}} {
		expression, known := t.expand(m.expression)
		re, err := regexp.Compile("(?m)" + expression)
		if m.expression != "" && (!known || err != nil || !re.MatchString(m.text)) {
			return false
		}
	}
	return true
}
