package vmimage

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// libraries copies from all to t what the program at p needs to run: its interpreter and its shared libraries, as the
// dynamic loader would find them. Only names in the ELF headers count; what a program loads with dlopen is not seen.
func libraries(t, all tree, p string) error {
	n := t[p]
	if n.mode.IsDir() || n.mode&fs.ModeSymlink != 0 || !bytes.HasPrefix(n.data, []byte(elf.ELFMAG)) {
		return nil
	}
	f, err := elf.NewFile(bytes.NewReader(n.data))
	if err != nil {
		return fmt.Errorf("%s: %w", p, err)
	}
	var needed []string
	for _, prog := range f.Progs {
		if prog.Type == elf.PT_INTERP {
			text := make([]byte, prog.Filesz)
			if _, err := prog.ReadAt(text, 0); err != nil {
				return fmt.Errorf("%s: %w", p, err)
			}
			needed = append(needed, strings.TrimRight(string(text), "\x00"))
		}
	}
	// A static program has no dynamic section.
	if f.Section(".dynamic") != nil {
		names, err := f.ImportedLibraries()
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		needed = append(needed, names...)
	}
	dirs := libraryDirs
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		paths, _ := f.DynString(tag) // most programs have none
		for list := range slices.Values(paths) {
			for dir := range strings.SplitSeq(list, ":") {
				dir = strings.ReplaceAll(strings.ReplaceAll(dir, "${ORIGIN}", "$ORIGIN"), "$ORIGIN", "/"+path.Dir(p))
				dirs = append([]string{mergedUsr(path.Clean(dir))}, dirs...)
			}
		}
	}
	for _, name := range needed {
		if err := library(t, all, dirs, name, p); err != nil {
			return err
		}
	}
	return nil
}

// libraryDirs are the default directories of Debian's dynamic loader on x86-64: no ld.so.cache is needed for them.
var libraryDirs = []string{"usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib"}

func library(t, all tree, dirs []string, name, by string) error {
	candidates := []string{mergedUsr(name)}
	if !strings.Contains(name, "/") {
		candidates = nil
		for _, d := range dirs {
			candidates = append(candidates, path.Join(d, name))
		}
	}
	i := slices.IndexFunc(candidates, func(c string) bool { _, ok := all[c]; return ok })
	if i < 0 {
		return buildError(fmt.Sprintf("no package has %s, which %s needs", name, by),
			"name the package that has it beside the others", nil)
	}
	p := candidates[i]
	for range 8 { // a chain of links, as libx.so.1 → libx.so.1.2
		if _, done := t[p]; done {
			return nil
		}
		n, ok := all[p]
		if !ok {
			return buildError(fmt.Sprintf("no package has /%s, which %s needs", p, by),
				"name the package that has it beside the others", nil)
		}
		t[p] = n
		if n.mode&fs.ModeSymlink == 0 {
			return libraries(t, all, p)
		}
		target := string(n.data)
		if !path.IsAbs(target) {
			target = path.Join("/", path.Dir(p), target)
		}
		p = mergedUsr(path.Clean(target))
	}
	return buildError("too many links at /"+p, "", nil)
}
