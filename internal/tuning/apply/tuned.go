package apply

import (
	"context"
	"path"
	"strings"

	"github.com/grange-project/grange/internal/lazyregexp"
	"github.com/grange-project/grange/internal/tuning"
)

var (
	tunedFile    = lazyregexp.New(`^etc/tuned/(profiles/)?[A-Za-z0-9_-][A-Za-z0-9_.-]*/tuned\.conf$`)
	tunedSection = lazyregexp.New(`^[A-Za-z0-9_.-]+$`)
	tunedOption  = lazyregexp.New(`^[A-Za-z0-9_./*-]+$`)
)

// tuned sets options in profiles of the site's own, which tuned reads when it starts next. Until then the values that
// were set hold: it writes a value once.
func (p *planner) tuned(context.Context) error {
	byFile := map[string][]request{}
	for _, r := range p.of(tuning.SetTuned) {
		byFile[r.Path] = append(byFile[r.Path], r)
	}
	for _, file := range sortedKeys(byFile) {
		requests := byFile[file]
		err := p.editFile(file, func() []request { return requests }, func(old string) string {
			if old == "" { // it stands in for the packaged profile of its name, which it includes
				old = header + "[main]\ninclude=" + path.Base(path.Dir(file)) + "\n"
			}
			for _, r := range requests {
				old = setOption(old, r.Unit, r.Name, r.Value)
			}
			return old
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// setOption sets an option in a section of a tuned profile. Lines that set it to something else stay as comments.
func setOption(text, section, name, value string) string {
	line := name + "=" + value
	if now := options(text, section, name); len(now) > 0 && now[len(now)-1] == value {
		return text
	}
	in, placed := "", false
	text = edit(text, func(l string) []string {
		if head, ok := heading(l); ok {
			in = head
			return []string{l}
		}
		if key, _, ok := strings.Cut(l, "="); ok && in == section && strings.TrimSpace(key) == name {
			if placed {
				return []string{marked + l}
			}
			placed = true
			return []string{marked + l, line}
		}
		return []string{l}
	})
	if placed {
		return text
	}
	return inSection(text, section, line)
}

// inSection puts a line at the head of a section, which is made where there is none.
func inSection(text, section, line string) string {
	placed := false
	text = edit(text, func(l string) []string {
		if head, ok := heading(l); ok && head == section && !placed {
			placed = true
			return []string{l, line}
		}
		return []string{l}
	})
	if placed {
		return text
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + "\n[" + section + "]\n" + line + "\n"
}

// options lists the values of an option in a section, in their order.
func options(text, section, name string) []string {
	var out []string
	in := ""
	for l := range strings.Lines(text) {
		if head, ok := heading(l); ok {
			in = head
		} else if key, value, ok := strings.Cut(l, "="); ok && in == section && strings.TrimSpace(key) == name {
			out = append(out, strings.TrimSpace(value))
		}
	}
	return out
}

// heading returns the name of the section that a line begins.
func heading(line string) (name string, ok bool) {
	word := strings.TrimSpace(line)
	name, ok = strings.CutPrefix(word, "[")
	if !ok || !strings.HasSuffix(name, "]") {
		return "", false
	}
	return strings.TrimSuffix(name, "]"), true
}
