// Package tuningtest makes the changes that findings offer on the files of a recorded host. Tests audit the host again
// afterwards.
package tuningtest

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/tuning"
)

// Change makes a change on files, as the kernel and the next boot would read them afterwards. A value that takes a
// reboot is not shown by the running kernel.
func Change(files map[string]string, c tuning.Change) error {
	switch c.Kind {
	case tuning.SetValue:
		return setValue(files, c)
	case tuning.SetBoot:
		setBoot(files, c)
	case tuning.SetModule:
		setModule(files, c)
	case tuning.SetService:
		setService(files, c)
	case tuning.SetTuned:
		if files[c.Path] == "" {
			files[c.Path] = "[main]\ninclude=" + path.Base(path.Dir(c.Path)) + "\n"
		}
		files[c.Path] += "[" + c.Unit + "]\n" + c.Name + "=" + c.Value + "\n"
	case tuning.Unmerge:
		for _, name := range []string{"run", "pages_shared", "pages_sharing"} {
			files["sys/kernel/mm/ksm/"+name] = "0\n"
		}
	default:
		return fmt.Errorf("unknown kind of change %q", c.Kind)
	}
	return nil
}

func setValue(files map[string]string, c tuning.Change) error {
	if c.Reboot {
		return nil
	}
	old, ok := files[c.Path]
	if !ok {
		return fmt.Errorf("there is no %s to write to", c.Path)
	}
	files[c.Path] = written(old, c.Value)
	return nil
}

// written is what a file of /sys shows after a value was written to it.
func written(old, value string) string {
	if !strings.Contains(old, "[") {
		return value + "\n"
	}
	words := strings.Fields(strings.NewReplacer("[", "", "]", "").Replace(old))
	if i := slices.Index(words, value); i >= 0 {
		words[i] = "[" + value + "]"
	}
	return strings.Join(words, " ") + "\n"
}

func setModule(files map[string]string, c tuning.Change) {
	files["etc/modprobe.d/zz-advice.conf"] += "options " + c.Unit + " " + c.Name + "=" + c.Value + "\n"
	if c.Reboot {
		return
	}
	shown, known := map[string]string{"1": "Y", "0": "N"}[c.Value]
	if !known {
		shown = c.Value
	}
	files["sys/module/"+c.Unit+"/parameters/"+c.Name] = shown + "\n"
}

func setService(files map[string]string, c tuning.Change) {
	for name, text := range maps.Clone(files) {
		unit := strings.HasSuffix(name, ".wants/"+c.Unit+".service")
		runs := strings.HasSuffix(name, "/comm") && strings.TrimSpace(text) == c.Unit[:min(len(c.Unit), 15)]
		if c.Value == "off" && (unit || runs) {
			delete(files, name)
		}
	}
}

// setBoot edits /etc/default/grub. Words about huge pages go together: a number belongs to the size before it.
func setBoot(files map[string]string, c tuning.Change) {
	const file = "etc/default/grub"
	plain := func(name string) string { return strings.ReplaceAll(name, "-", "_") }
	var out strings.Builder
	for line := range strings.Lines(files[file]) {
		value, ok := strings.CutPrefix(strings.TrimSpace(line), `GRUB_CMDLINE_LINUX="`)
		if !ok {
			out.WriteString(line)
			continue
		}
		words := slices.DeleteFunc(strings.Fields(strings.TrimSuffix(value, `"`)), func(w string) bool {
			name, _, _ := strings.Cut(w, "=")
			return plain(name) == plain(c.Name) || c.Name == "default_hugepagesz" &&
				(name == "hugepagesz" || name == "hugepages")
		})
		if !c.Remove {
			words = append(words, strings.TrimSuffix(c.Name+"="+c.Value, "="))
		}
		out.WriteString(`GRUB_CMDLINE_LINUX="` + strings.Join(words, " ") + "\"\n")
	}
	files[file] = out.String()
}
