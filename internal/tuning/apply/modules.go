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

// packagedModprobe are directories of the distribution. A file of the same name in /etc stands in for one of theirs; modprobe.d(5).
var packagedModprobe = []string{"usr/lib/modprobe.d", "lib/modprobe.d"}

func isModprobe(name string) bool { return strings.HasPrefix(name, modprobeDir+"/") }

// modules sets options of kernel modules: in modprobe.d for the next load, and by a new load now. A parameter that the kernel lets
// us write needs no new load, unless the rule says that it does.
func (p *planner) modules(context.Context) error {
	loads := map[string]*Step{}
	from := map[string][]request{}
	var settings []request
	for _, r := range p.of(tuning.SetModule) {
		builtin, err := p.builtin(r.Unit)
		if err != nil {
			return err
		}
		if builtin {
			p.requests = append(p.requests, request{tuning.Change{Kind: tuning.SetBoot, Name: r.Unit + "." + r.Name, Value: r.Value, Reboot: true}, r.rules, r.wants})
		} else {
			settings = append(settings, r)
		}
		file := "sys/module/" + r.Unit + "/parameters/" + r.Name
		text, ok, err := p.present(file)
		if err != nil {
			return err
		}
		if !ok || r.Reboot || sameValue(text, r.Value) {
			continue
		}
		info, err := p.system.Root().Stat(file)
		if err != nil {
			return err
		}
		if info.Mode()&0o200 != 0 && !r.NoVMs {
			p.add(Step{Kind: StepValue, Path: file, Old: State{Text: text}, New: State{Text: r.Value}}, r)
			continue
		}
		if builtin {
			continue
		}
		s := loads[r.Unit]
		if s == nil {
			s = &Step{Kind: StepModule, Unit: r.Unit, NoVMs: true, Old: State{Params: map[string]string{}}, New: State{Params: map[string]string{}}}
			loads[r.Unit] = s
		}
		s.Old.Params[r.Name], s.New.Params[r.Name] = text, r.Value
		from[r.Unit] = append(from[r.Unit], r)
	}
	for _, unit := range sortedKeys(loads) {
		p.add(*loads[unit], from[unit]...)
	}
	return p.modprobe(settings)
}

// builtin tells whether a module is part of the kernel, where modprobe.d means nothing. Only loadable ones have an initstate; a
// recorded tree may hold none at all, and then they are taken for loadable.
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
		if slices.Contains(have, place) {
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

// withoutOptions is a line of modprobe.d without the options that requests set. With a mark, the line stays as a comment.
func withoutOptions(line string, requests []request, mark string) []string {
	words := strings.Fields(line)
	if len(words) < 3 || words[0] != "options" {
		return []string{line}
	}
	keep := words[:2:2]
	contradicts := false
	for _, word := range words[2:] {
		name, value, _ := strings.Cut(word, "=")
		i := slices.IndexFunc(requests, func(r request) bool { return underscored(words[1]) == r.Unit && underscored(name) == r.Name })
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

// sameOptions tells whether two texts hold the same lines in any order, so that a file that is right already is left alone.
func sameOptions(a, b string) bool {
	x, y := strings.Fields(strings.ReplaceAll(a, " ", "\x01")), strings.Fields(strings.ReplaceAll(b, " ", "\x01"))
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}
