package apply

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/tuning"
)

// Files of ours. What is in them holds from the next boot on.
const (
	tmpfilesDir  = "etc/tmpfiles.d"
	tmpfilesFile = tmpfilesDir + "/grange-tuning.conf"
	sysctlDir    = "etc/sysctl.d"
	sysctlFile   = sysctlDir + "/90-grange-tuning.conf"
	sysctlConf   = "etc/sysctl.conf"
)

const (
	header = "# Made by `grange tune apply`; `grange tune undo` takes it back.\n"
	marked = "# grange tune: " // before a line that we put out of force
)

// setting is a line of a file of ours: what it sets, and how it is written.
type setting struct {
	name, line string
	from       []request
}

// values sets values of /sys and /proc/sys, now and at each boot.
func (p *planner) values(context.Context) error {
	var tmpfiles, sysctls []setting
	_, unmerge := p.wanted["unmerge"]
	requests := slices.Clone(p.requests)
	// as they are read at boot
	slices.SortStableFunc(requests, func(a, b request) int { return largePagesFirst(a.Path, b.Path) })
	for _, r := range requests {
		if r.Kind == tuning.Unmerge {
			r.Path, r.Value = ksmRun, "0"
		}
		if r.Kind != tuning.SetValue && r.Kind != tuning.Unmerge || r.Kind == tuning.SetValue &&
			r.Path == ksmRun && unmerge {
			continue
		}
		text, ok, err := p.present(r.Path)
		if err != nil {
			return err
		}
		if !ok {
			if r.Kind == tuning.SetValue { // of KSM it was said
				p.manual(r, "/%s does not exist on this host", r.Path)
			}
			continue
		}
		if r.Kind == tuning.SetValue && !r.Reboot && !sameValue(text, r.Value) {
			p.add(Step{Kind: StepValue, Path: r.Path, Old: State{Text: text}, New: State{Text: r.Value},
				NoVMs: r.NoVMs}, r)
		}
		if name, ok := strings.CutPrefix(r.Path, "proc/sys/"); ok {
			sysctls = append(sysctls, setting{sysctlName(name), sysctlName(name) + " = " + r.Value, []request{r}})
		} else {
			tmpfiles = append(tmpfiles, setting{"/" + r.Path, "w /" + r.Path + " - - - - " + tmpfilesValue(r.Value),
				[]request{r}})
		}
	}
	if err := p.persist(tmpfilesFile, tmpfiles, tmpfilesName, []string{tmpfilesDir}); err != nil {
		return err
	}
	return p.persist(sysctlFile, sysctls, sysctlLineName, []string{sysctlDir, sysctlConf})
}

// sysctlName is a name as sysctl writes it. Where a part holds a dot, as interfaces do, slashes must stay.
func sysctlName(below string) string {
	if strings.Contains(below, ".") {
		return below
	}
	return strings.ReplaceAll(below, "/", ".")
}

func sysctlLineName(line string) string {
	name, _, ok := strings.Cut(strings.TrimLeft(line, "- \t"), "=")
	name = strings.TrimSpace(name)
	if !ok || strings.HasPrefix(name, "#") || strings.HasPrefix(name, ";") {
		return ""
	}
	// A name whose first separator is a slash keeps its dots; sysctl.d(5).
	if slash, dot := strings.Index(name, "/"), strings.Index(name, "."); slash >= 0 && (dot < 0 || slash < dot) {
		return sysctlName(name)
	}
	return name
}

// tmpfilesValue guards what systemd-tmpfiles would expand.
func tmpfilesValue(value string) string {
	return strings.NewReplacer(`\`, `\\`, "%", "%%").Replace(value)
}

// tmpfilesName is the path that a line "w /sys/… - - - - value" writes to.
func tmpfilesName(line string) string {
	fields := strings.Fields(line)
	if len(fields) < 2 || !strings.HasPrefix(fields[0], "w") {
		return ""
	}
	return fields[1]
}

// persist writes settings into a file of ours, and puts lines of others out of force that set the same to something
// else. nameOf tells what a line sets, "" for nothing.
func (p *planner) persist(file string, settings []setting, nameOf func(line string) string, places []string) error {
	if len(settings) == 0 {
		return nil
	}
	byName := map[string]setting{}
	for _, s := range settings {
		byName[s.name] = s
	}
	if err := p.editFile(file, all(settings),
		func(old string) string { return ownFile(old, settings, nameOf) }); err != nil {
		return err
	}
	others, err := p.confFiles(places)
	if err != nil {
		return err
	}
	for _, other := range others {
		if other == file {
			continue
		}
		var from []request
		err := p.editFile(other, func() []request { return from }, func(old string) string {
			return edit(old, func(line string) []string {
				s, ok := byName[nameOf(line)]
				if !ok || sameLine(line, s.line) {
					return []string{line}
				}
				from = append(from, s.from...)
				return []string{marked + line}
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func all(settings []setting) func() []request {
	return func() []request {
		var out []request
		for _, s := range settings {
			out = append(out, s.from...)
		}
		return out
	}
}

func sameLine(a, b string) bool {
	squeeze := func(s string) string { return strings.Join(strings.Fields(strings.ReplaceAll(s, "=", " = ")), " ") }
	return squeeze(a) == squeeze(b)
}

// ownFile is a file of ours with settings in it: those it had keep their place.
func ownFile(old string, settings []setting, nameOf func(string) string) string {
	placed := map[string]bool{}
	text := edit(old, func(line string) []string {
		for _, s := range settings {
			if nameOf(line) == s.name {
				if placed[s.name] {
					return nil
				}
				placed[s.name] = true
				return []string{s.line}
			}
		}
		return []string{line}
	})
	switch {
	case text == "":
		text = header
	case !strings.HasSuffix(text, "\n"):
		text += "\n"
	}
	for _, s := range settings {
		if !placed[s.name] {
			placed[s.name] = true
			text += s.line + "\n"
		}
	}
	return text
}

// edit replaces each line, without its newline, by those that change returns.
func edit(text string, change func(line string) []string) string {
	var b strings.Builder
	for whole := range strings.Lines(text) {
		l, ended := strings.CutSuffix(whole, "\n")
		for _, now := range change(l) {
			b.WriteString(now)
			if ended || now != l {
				b.WriteString("\n")
			}
		}
	}
	return b.String()
}

// masked reports whether a file links to /dev/null, which is how a file of that name in /usr/lib is put out of force.
func (p *planner) masked(file string) bool {
	link, err := p.system.Root().Readlink(file)
	return err == nil && path.Join("/", path.Dir(file), link) == "/dev/null" || link == "/dev/null"
}

// confFiles lists the files *.conf of directories, and single files, that are there. Masked ones set nothing.
func (p *planner) confFiles(places []string) ([]string, error) {
	var out []string
	for _, place := range places {
		found := []string{place}
		if !strings.HasSuffix(place, ".conf") {
			names, err := entries(p.system.Root(), place)
			if err != nil {
				return nil, err
			}
			found = nil
			for _, name := range names {
				if strings.HasSuffix(name, ".conf") {
					found = append(found, path.Join(place, name))
				}
			}
		}
		out = append(out, slices.DeleteFunc(found, p.masked)...)
	}
	return out, nil
}

// editFile adds a step for a file when change makes another text of it. A file that is not there is made when the text
// is not empty. Several edits of one file are one step.
func (p *planner) editFile(name string, from func() []request, change func(old string) string) error {
	root := p.system.Root()
	link := name
	name, err := resolve(root, link)
	if err != nil {
		return err
	}
	for i := range p.plan.Steps {
		if s := &p.plan.Steps[i]; s.Kind == StepFile && s.Path == name {
			now := *s.New.File
			now.Data = []byte(change(now.text()))
			s.New.File = &now
			p.serve(i, from()...)
			return nil
		}
	}
	old, err := readFile(root, name)
	if err != nil {
		return err
	}
	if old != nil && !old.Mode.IsRegular() {
		return unsafePath(name, "is not a plain file")
	}
	text := change(old.text())
	if text == old.text() {
		return nil
	}
	if !editable(name) {
		return unsafePath(link, "links to /"+name+", which is not in /etc or /boot")
	}
	now := &File{Mode: 0o644, UID: p.system.Owner(), GID: p.system.Group()}
	if old != nil {
		*now = *old
	}
	now.Data = []byte(text)
	p.add(Step{Kind: StepFile, Path: name, Old: State{File: old}, New: State{File: now}}, from()...)
	return nil
}
