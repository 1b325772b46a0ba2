package apply

import (
	"context"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/tuning"
)

// menus are read by boot loaders themselves. They are edited only where nothing else says how to make them.
var menus = []string{"boot/grub2/grub.cfg", "boot/grub/grub.cfg", "boot/grub/grub.conf", "boot/grub/menu.lst"}

// Where the next command line of the kernel is written.
const (
	grubFile    = "etc/default/grub"
	grubDir     = "etc/default/grub.d"
	grubOwn     = grubDir + "/90-grange-tuning.cfg"
	kernelFile  = "etc/kernel/cmdline"
	entriesDir  = "boot/loader/entries" // the Boot Loader Specification: one file a kernel
	grubLine    = "GRUB_CMDLINE_LINUX"
	grubDefault = "GRUB_CMDLINE_LINUX_DEFAULT"
)

// bootPrograms make the boot loader's own files, for people.
const bootPrograms = "update-grub, grub2-mkconfig, grub-mkconfig or kernel-install"

// boot puts parameters on the kernel's next command line.
func (p *planner) boot(context.Context) error {
	requests := p.of(tuning.SetBoot)
	if len(requests) == 0 {
		return nil
	}
	before := len(p.plan.Steps)
	places, err := p.bootPlaces()
	if err != nil {
		return err
	}
	if len(places) == 0 {
		for _, r := range requests {
			p.manual(r, "no boot loader is known here: %s on the kernel's command line by hand", bootAdvice(r))
		}
		return nil
	}
	from := func() []request { return requests }
	for _, place := range places {
		if err := p.editFile(place.file, from, place.edit(requests)); err != nil {
			return err
		}
	}
	for i := before; i < len(p.plan.Steps); i++ {
		p.plan.Steps[i].Reboot = true
	}
	made := false
	for i, s := range p.plan.Steps {
		made = made || i >= before &&
			slices.ContainsFunc(places, func(b bootPlace) bool { return b.source && b.file == s.Path })
	}
	if made && !p.system.CanUpdateBoot() {
		for _, r := range requests {
			p.manual(r, "make the boot loader's own files anew: this host has no %s", bootPrograms)
		}
		return nil
	}
	if made {
		p.add(Step{Kind: StepBoot, Reboot: true}, requests...)
	}
	return nil
}

func bootAdvice(r request) string {
	if r.Remove {
		return "take " + r.Name
	}
	return "put " + bootWord(r.Change)
}

func bootWord(c tuning.Change) string {
	if c.Value == "" {
		return c.Name
	}
	return c.Name + "=" + c.Value
}

// bootPlace is a file with a command line in it.
type bootPlace struct {
	file   string
	edit   func([]request) func(string) string
	source bool // the boot loader's own files have to be made from it
}

// bootPlaces lists the files that have to change, on this host.
func (p *planner) bootPlaces() ([]bootPlace, error) {
	root := p.system.Root()
	var out []bootPlace
	if grubReads(root) {
		more, err := p.grubPlaces()
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	if _, err := root.Stat(kernelFile); err == nil {
		out = append(out, bootPlace{kernelFile, wholeLine, true})
	}
	installed, err := p.confFiles([]string{entriesDir})
	if err != nil {
		return nil, err
	}
	for _, file := range installed {
		out = append(out, bootPlace{file, optionsLine, false})
	}
	if len(installed) > 0 {
		for i := range out { // what would be made of kernel-install's file is edited itself
			out[i].source = out[i].source && out[i].file != kernelFile
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	for _, menu := range menus {
		if _, err := root.Stat(menu); err == nil {
			return []bootPlace{{menu, kernelLines, false}}, nil
		}
	}
	return nil, nil
}

// grubReads reports whether grub-mkconfig takes a command line from this host's files. Debian has /etc/default/grub
// only where somebody has configured GRUB; files of grub.d are read without it, too.
func grubReads(root *os.Root) bool {
	if _, err := root.Stat(grubFile); err == nil {
		return true
	}
	names, err := entries(root, grubDir)
	return err == nil && slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, ".cfg") })
}

// grubPlaces: where there is a grub.d, our words go into a file of ours there, and the others lose them.
func (p *planner) grubPlaces() ([]bootPlace, error) {
	root := p.system.Root()
	if _, err := root.Stat(grubDir); err != nil {
		return []bootPlace{{grubFile, grubWords, true}}, nil
	}
	var out []bootPlace
	if _, err := root.Stat(grubFile); err == nil {
		out = append(out, bootPlace{grubFile, grubRemove, true})
	}
	names, err := entries(root, grubDir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if file := path.Join(grubDir, name); strings.HasSuffix(name, ".cfg") && file != grubOwn && !p.masked(file) {
			out = append(out, bootPlace{file, grubRemove, true})
		}
	}
	return append(out, bootPlace{grubOwn, grubOwnWords, true}), nil
}

// wholeLine edits a file that is one command line.
func wholeLine(requests []request) func(string) string {
	return func(old string) string {
		return strings.TrimLeft(withWords(strings.TrimSuffix(old, "\n"), requests)+"\n", " ")
	}
}

// optionsLine edits the line "options …" of a boot loader entry.
func optionsLine(requests []request) func(string) string {
	return func(old string) string {
		return edit(old, func(line string) []string {
			key, rest, ok := strings.Cut(line, " ")
			if !ok || key != "options" {
				return []string{line}
			}
			return []string{key + " " + withWords(rest, requests)}
		})
	}
}

// kernelLines edits each line of a menu that boots a kernel: "linux /vmlinuz-… words".
func kernelLines(requests []request) func(string) string {
	return func(old string) string {
		return edit(old, func(line string) []string {
			words := strings.Fields(line)
			if len(words) < 2 || !slices.Contains([]string{"linux", "linux16", "linuxefi", "kernel"}, words[0]) ||
				!strings.HasPrefix(path.Base(words[1]), "vmlinu") {
				return []string{line}
			}
			indent := line[:strings.Index(line, words[0])]
			if hasWords(words[2:], requests) {
				return []string{line}
			}
			return []string{indent + words[0] + " " + words[1] + " " +
				withWords(strings.Join(words[2:], " "), requests)}
		})
	}
}

// grubWords edits the assignments of /etc/default/grub: words go to the one for all boots.
func grubWords(requests []request) func(string) string {
	return func(old string) string {
		if grubSame(old, requests) {
			return old
		}
		placed := false
		text := edit(grubRemove(requests)(old), func(line string) []string {
			name, value, quote, ok := assignment(line)
			if !ok || name != grubLine || placed {
				return []string{line}
			}
			placed = true
			return []string{name + "=" + quote + withWords(value, requests) + quote}
		})
		if !placed {
			if text != "" && !strings.HasSuffix(text, "\n") {
				text += "\n"
			}
			text += grubLine + `="` + withWords("", requests) + "\"\n"
		}
		return text
	}
}

// grubSame reports that a file says already what requests want.
func grubSame(text string, requests []request) bool {
	var words []string
	for line := range strings.Lines(text) {
		if name, value, _, ok := assignment(strings.TrimSuffix(line, "\n")); ok &&
			(name == grubLine || name == grubDefault) {
			words = append(words, strings.Fields(value)...)
		}
	}
	return hasWords(words, requests)
}

// grubRemove takes the words that requests set out of all assignments.
func grubRemove(requests []request) func(string) string {
	return func(old string) string {
		return edit(old, func(line string) []string {
			name, value, quote, ok := assignment(line)
			if !ok || name != grubLine && name != grubDefault {
				return []string{line}
			}
			kept := withoutWords(strings.Fields(value), requests)
			if len(kept) == len(strings.Fields(value)) {
				return []string{line}
			}
			return []string{name + "=" + quote + strings.Join(kept, " ") + quote}
		})
	}
}

// grubOwnWords is our file in grub.d: it adds to what the others have set.
func grubOwnWords(requests []request) func(string) string {
	return func(old string) string {
		own := ""
		for line := range strings.Lines(old) {
			if name, value, _, ok := assignment(strings.TrimSuffix(line, "\n")); ok && name == grubLine {
				own = strings.TrimPrefix(value, "$"+grubLine)
			}
		}
		words := withWords(strings.TrimSpace(own), requests)
		if words == "" {
			return ""
		}
		return header + grubLine + `="$` + grubLine + " " + words + "\"\n"
	}
}

// assignment reads a line of shell: NAME="value", with either quote or none.
func assignment(line string) (name, value, quote string, ok bool) {
	name, value, ok = strings.Cut(strings.TrimSpace(line), "=")
	if !ok || strings.HasPrefix(name, "#") || strings.ContainsAny(name, " \t$") {
		return "", "", "", false
	}
	for _, q := range []string{`"`, "'"} {
		if inner, found := strings.CutPrefix(value, q); found {
			inner, found = strings.CutSuffix(inner, q)
			return name, inner, q, found && !strings.Contains(inner, q)
		}
	}
	return name, value, `"`, !strings.ContainsAny(value, " \t")
}

// withWords is a command line as requests want it: their words last, in their order.
func withWords(line string, requests []request) string {
	words := strings.Fields(line)
	if hasWords(words, requests) {
		return line
	}
	words = withoutWords(words, requests)
	for _, r := range requests {
		if !r.Remove {
			words = append(words, bootWord(r.Change))
		}
	}
	return strings.Join(words, " ")
}

// hasWords reports whether a command line says what requests want, and says it once.
func hasWords(words []string, requests []request) bool {
	var about, want []string
	kept := withoutWords(words, requests)
	for _, w := range words {
		if !slices.Contains(kept, w) {
			about = append(about, w)
		}
	}
	for _, r := range requests {
		if !r.Remove {
			want = append(want, bootWord(r.Change))
		}
	}
	return slices.Equal(about, want)
}

// withoutWords drops what requests set. Numbers of huge pages belong to the size before them, so whoever sets one sets
// them all.
func withoutWords(words []string, requests []request) []string {
	var kept []string
	for _, w := range words {
		name, _, _ := strings.Cut(w, "=")
		if !slices.ContainsFunc(requests, func(r request) bool {
			return sameParameter(r.Name, name) || isPages(r.Name) && isPages(name)
		}) {
			kept = append(kept, w)
		}
	}
	return kept
}

func isPages(name string) bool { return name == "hugepages" || name == "hugepagesz" }

// sameParameter compares as the kernel does, to which a dash is an underscore.
func sameParameter(a, b string) bool { return underscored(a) == underscored(b) }
