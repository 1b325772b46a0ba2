package apply

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/tuning"
)

const (
	modprobeDir  = "etc/modprobe.d"
	modprobeFile = modprobeDir + "/grange-tuning.conf"
)

// packagedModprobe are directories of the distribution. A file of the same name in /etc stands in for one of theirs;
// modprobe.d(5).
var packagedModprobe = []string{"usr/lib/modprobe.d", "lib/modprobe.d"}

func isModprobe(name string) bool { return strings.HasPrefix(name, modprobeDir+"/") }

// load is a module that has to be loaded anew.
type load struct {
	step Step
	from []request
}

// modules sets options of kernel modules: in modprobe.d for the next load, or on the kernel's command line for one that
// is built in; and now.
func (p *planner) modules(context.Context) error {
	loads := map[string]*load{}
	var settings []request
	for _, r := range p.of(tuning.SetModule) {
		builtin, err := p.builtin(r.Unit)
		if err != nil {
			return err
		}
		if builtin {
			p.requests = append(p.requests,
				request{tuning.Change{Kind: tuning.SetBoot, Name: r.Unit + "." + r.Name, Value: r.Value, Reboot: true},
					r.rules, r.wants})
		} else {
			settings = append(settings, r)
		}
		if err := p.param(r, builtin, loads); err != nil {
			return err
		}
	}
	for _, unit := range sortedKeys(loads) {
		p.add(loads[unit].step, loads[unit].from...)
	}
	return p.modprobe(settings)
}

// param sets a parameter of a loaded module now. One that the kernel lets us write needs no new load, unless the rule
// says that it does.
func (p *planner) param(r request, builtin bool, loads map[string]*load) error {
	file := param{module: r.Unit, name: r.Name}.path()
	text, ok, err := p.present(file)
	if err != nil || !ok || r.Reboot || sameValue(text, r.Value) {
		return err
	}
	info, err := p.system.Root().Stat(file)
	if err != nil {
		return err
	}
	if info.Mode()&0o200 != 0 && !r.NoVMs {
		p.add(Step{Kind: StepValue, Path: file, Old: State{Text: text}, New: State{Text: r.Value}}, r)
		return nil
	}
	if builtin {
		return nil // it cannot be loaded anew
	}
	l := loads[r.Unit]
	if l == nil {
		l = &load{step: Step{Kind: StepModule, Unit: r.Unit, NoVMs: true, Old: State{Params: map[string]string{}},
			New: State{Params: map[string]string{}}}}
		loads[r.Unit] = l
	}
	l.step.Old.Params[r.Name], l.step.New.Params[r.Name] = text, r.Value
	l.from = append(l.from, r)
	return nil
}

// builtin reports whether a module is part of the kernel, where modprobe.d means nothing. Only loadable ones have an
// initstate; a recorded tree may hold none at all, and then they are taken for loadable.
func (p *planner) builtin(unit string) (bool, error) {
	root := p.system.Root()
	if _, err := root.Stat("sys/module/" + unit); missing(err) {
		return false, nil
	}
	if _, err := root.Stat("sys/module/" + unit + "/initstate"); err == nil {
		return false, nil
	}
	if p.system.Live() {
		return true, nil
	}
	names, err := entries(root, "sys/module")
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(names, func(n string) bool {
		_, err := root.Stat("sys/module/" + n + "/initstate")
		return err == nil
	}), nil
}

// modprobe writes options into our file, and takes them out of the lines of other files.
func (p *planner) modprobe(requests []request) error {
	if len(requests) == 0 {
		return nil
	}
	err := p.editFile(modprobeFile, func() []request { return requests }, func(old string) string {
		text := edit(old, func(line string) []string { return withoutOptions(line, requests, "") })
		if text == "" {
			text = header
		}
		for _, r := range requests {
			text += "options " + r.Unit + " " + r.Name + "=" + r.Value + "\n"
		}
		if sameOptions(old, text) {
			return old
		}
		return text
	})
	if err != nil {
		return err
	}
	others, err := p.confFiles([]string{modprobeDir})
	if err != nil {
		return err
	}
	for _, other := range others {
		if other == modprobeFile {
			continue
		}
		if err := p.dropOptions(other, nil, requests); err != nil {
			return err
		}
	}
	return p.packagedOptions(requests, others)
}

// packagedOptions puts an edited copy into /etc for each packaged file that contradicts.
func (p *planner) packagedOptions(requests []request, have []string) error {
	packaged, err := p.confFiles(packagedModprobe)
	if err != nil {
		return err
	}
	for _, file := range packaged {
		place := path.Join(modprobeDir, path.Base(file))
		if slices.Contains(have, place) || p.masked(place) {
			continue
		}
		have = append(have, place)
		text, err := readBytes(p.system.Root(), file)
		if err != nil {
			return err
		}
		if err := p.dropOptions(place, text, requests); err != nil {
			return err
		}
	}
	return nil
}

// dropOptions takes options out of a file; packaged is what the file begins as when it is not there.
func (p *planner) dropOptions(file string, packaged []byte, requests []request) error {
	var from []request
	return p.editFile(file, func() []request { return from }, func(old string) string {
		if packaged != nil {
			old = string(packaged)
		}
		text := edit(old, func(line string) []string {
			now := withoutOptions(line, requests, marked)
			if len(now) != 1 || now[0] != line {
				from = requests
			}
			return now
		})
		if packaged != nil && text == old {
			return ""
		}
		return text
	})
}

// withoutOptions is a line of modprobe.d without the options that requests set. With a mark, the line stays as a
// comment.
func withoutOptions(line string, requests []request, mark string) []string {
	words := strings.Fields(line)
	if len(words) < 3 || words[0] != "options" {
		return []string{line}
	}
	keep := words[:2:2]
	contradicts := false
	for _, word := range words[2:] {
		name, value, _ := strings.Cut(word, "=")
		i := slices.IndexFunc(requests, func(r request) bool {
			return underscored(words[1]) == r.Unit &&
				underscored(name) == r.Name
		})
		if i < 0 {
			keep = append(keep, word)
			continue
		}
		contradicts = contradicts || mark == "" || !sameValue(value, requests[i].Value)
	}
	if !contradicts {
		return []string{line}
	}
	var out []string
	if mark != "" {
		out = append(out, mark+line)
	}
	if len(keep) > 2 {
		out = append(out, strings.Join(keep, " "))
	}
	return out
}

// sameOptions reports whether two texts hold the same lines in any order, so that a file that is right already is left
// alone.
func sameOptions(a, b string) bool {
	sorted := func(text string) []string { return slices.Sorted(strings.Lines(text)) }
	return slices.Equal(sorted(a), sorted(b))
}
