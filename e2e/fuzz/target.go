package main

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// target is one fuzz target.
type target struct {
	dir  string // of its package, from the root of the module
	name string // FuzzRead
}

func (t target) String() string { return t.dir + "." + t.name }

var declared = regexp.MustCompile(`(?m)^func (Fuzz\w*)\(`)

// find returns all targets below a directory whose name has a text in it.
func find(top, only string) (targets []target, err error) {
	err = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && path != top &&
			(name == "testdata" || name == "bin" || strings.HasPrefix(name, ".")) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			if t := (target{filepath.Dir(path), m[1]}); strings.Contains(t.String(), only) {
				targets = append(targets, t)
			}
		}
		return err
	})
	if err == nil && len(targets) == 0 {
		err = errors.New("no such target")
	}
	slices.SortFunc(targets, func(a,
		b target) int {
		return cmp.Or(cmp.Compare(a.dir, b.dir), cmp.Compare(a.name, b.name))
	})
	return targets, err
}

// maxInput is what one input in testdata/fuzz may take: they are read, and lie in the repository for ever.
const maxInput = 1 << 10

// keep copies the smallest inputs that were found to testdata/fuzz, until there are as many as a target may have there.
func (t target) keep(o options) (kept int, err error) {
	found := filepath.Join(o.cache, t.dir, t.name)
	entries, err := os.ReadDir(found)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	size := func(e fs.DirEntry) int64 {
		info, err := e.Info()
		if err != nil {
			return 1 << 40
		}
		return info.Size()
	}
	slices.SortStableFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(size(a), size(b)) })
	dir := filepath.Join(t.dir, "testdata", "fuzz", t.name)
	there, _ := os.ReadDir(dir)
	for _, e := range entries {
		if len(there)+kept >= o.inputs || size(e) > maxInput {
			break
		}
		text, err := os.ReadFile(filepath.Join(found, e.Name()))
		if err != nil {
			return kept, err
		}
		to := filepath.Join(dir, e.Name())
		if _, err := os.Lstat(to); err == nil {
			continue
		}
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(to, text, 0o644)); err != nil {
			return kept, err
		}
		kept++
	}
	return kept, nil
}
