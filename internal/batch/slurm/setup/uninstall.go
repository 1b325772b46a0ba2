package setup

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/atomicfile"
)

// Removal is what uninstall will do.
type Removal struct {
	Hollow []string // the prolog, while Slurm is still told to run it: it stays, and does nothing
	Remove []string // files that go
	// Edits take back what install wanted in the site's own files: made with Write, else shown.
	Edits []Edit
	// Named is where slurm.conf still has our prolog started.
	Named []string
}

// hollow is the prolog that stays. Slurm counts a Prolog that matches no file as one that failed, and drains the host.
const hollow = "#!/bin/sh\n" + mark +
	"# It does nothing any more, and is here for as long as slurm.conf names it.\nexit 0\n"

// Removal returns what would be removed. The prolog is judged by slurm.conf as it is now: what is written now, daemons
// read at the next reconfigure.
func (i Install) Removal() (Removal, error) {
	var r Removal
	conf, err := ReadConf(i.file(filepath.Join(i.ConfDir, "slurm.conf")))
	if err != nil {
		return r, err
	}
	hook := i.prologFile()
	if named := slices.ContainsFunc(strings.Split(conf.Get("Prolog"), ","),
		func(word string) bool { return i.only(strings.TrimSpace(word), hook) }); named {
		r.Named = append(r.Named, conf.Where("Prolog"))
		r.Hollow = append(r.Hollow, i.file(hook))
	} else if ours(i.file(hook)) {
		r.Remove = append(r.Remove, i.file(hook))
	}
	i.removeOCI(&r, conf)
	if drop := i.file(i.dropInFile()); ours(drop) {
		r.Remove = append(r.Remove, drop)
	}
	line := i.file(filepath.Join(i.ConfDir, "plugstack.conf.d/grange.conf"))
	if ours(line) {
		r.Remove = append(r.Remove, line)
	}
	if _, err := os.Stat(i.file(i.plugin())); err == nil {
		r.Remove = append(r.Remove, i.file(i.plugin()))
	}
	for _, f := range []struct {
		name string
		edit func(lines []string) []string
	}{{"plugstack.conf", i.withoutInclude}, {"slurm.conf",
		func(lines []string) []string { return i.withoutProlog(i.withoutEpilog(lines)) }}} {
		path := i.file(filepath.Join(i.ConfDir, f.name))
		old, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return r, err
		}
		if next := []byte(strings.Join(f.edit(strings.Split(string(old), "\n")), "\n")); !bytes.Equal(old, next) {
			r.Edits = append(r.Edits, Edit{path, old, next})
		}
	}
	return r, nil
}

func ours(path string) bool {
	text, err := os.ReadFile(path)
	return err == nil && bytes.Contains(text, []byte(mark))
}

// only reports whether a word of slurm.conf, which may be a pattern, means this file of ours and no other one.
func (i Install) only(word, file string) bool {
	if matches, err := filepath.Match(word, file); err != nil || !matches {
		return false
	}
	found, _ := filepath.Glob(i.file(word))
	return !slices.ContainsFunc(found, func(path string) bool { return path != i.file(file) })
}

func (i Install) withoutInclude(lines []string) []string {
	pattern, file := filepath.Join(i.ConfDir, "plugstack.conf.d/*.conf"), filepath.Join(i.ConfDir,
		"plugstack.conf.d/grange.conf")
	return slices.DeleteFunc(lines, func(line string) bool {
		f := strings.Fields(line)
		return len(f) == 2 && strings.EqualFold(f[0], "include") && f[1] == pattern && i.only(pattern, file)
	})
}

// withoutProlog takes out what install writes, and of the site's own lists our word only.
func (i Install) withoutProlog(lines []string) []string {
	var kept []string
	found := false
	for _, line := range lines {
		if strings.HasPrefix(line, "# ") &&
			(strings.HasSuffix(line, " is set: let it end with: exec "+i.prologFile()) ||
				strings.HasSuffix(line, " is set: add Contain") || strings.HasSuffix(line, " is set: add Alloc") ||
				strings.HasSuffix(line, " is set: add 199")) {
			found = true
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		if !strings.EqualFold(strings.TrimSpace(key), "prolog") || strings.ContainsAny(value, "\\#") {
			kept = append(kept, line)
			continue
		}
		words := strings.Split(value, ",")
		rest := slices.DeleteFunc(slices.Clone(words),
			func(word string) bool { return i.only(strings.TrimSpace(word), i.prologFile()) })
		switch {
		case len(rest) == len(words):
			kept = append(kept, line)
			continue
		case len(rest) > 0:
			kept = append(kept, key+"="+strings.Join(rest, ","))
		}
		found = true
	}
	if !found { // it was never ours, or is out already: these lines may be the site's own
		return lines
	}
	return slices.DeleteFunc(kept, func(line string) bool {
		return line == ourFlags || line == "PrologFlags=Alloc" || line == "RequeueExit=199"
	})
}

// Uninstall does it: first the prolog lets every job pass, then the line that loads the plug-in goes, then the plug-in.
func (i Install) Uninstall(r Removal) error {
	for _, path := range r.Hollow {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := atomicfile.Write(path, []byte(hollow), 0o755); err != nil {
			return err
		}
	}
	for _, path := range r.Remove {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	if i.Write {
		return replaceAll(r.Edits)
	}
	return nil
}

// replaceAll makes changes of the site's own files, which keep their modes.
func replaceAll(edits []Edit) error {
	for _, e := range edits {
		mode := fs.FileMode(0o644)
		if info, err := os.Stat(e.Path); err == nil {
			mode = info.Mode().Perm()
		}
		if err := atomicfile.Write(e.Path, e.New, mode); err != nil {
			return err
		}
	}
	return nil
}
