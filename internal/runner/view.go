package runner

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
)

// view is what a batch job's VM sees of its host: what the site binds, what the job asked for, and places of the job's
// own where neither covers them. docs/adr/0011 says why it is these.
type view struct {
	site   []bind
	own    []bind
	places []bind // as the working directory; those of the host itself are left out
}

// binds puts them in the order in which they are mounted: what lies in another comes after it.
func (v view) binds() []bind {
	var all []bind
	for _, b := range v.site {
		if isDir(b.Source) && !slices.ContainsFunc(v.own, func(o bind) bool { return o.Target == b.Target }) {
			all = append(all, b) // what the user could not see on the host either is left out
		}
	}
	all = append(all, v.own...)
	for _, p := range v.places {
		p.Source = filepath.Clean(p.Source)
		p.Target = p.Source
		if isDir(p.Source) && !hostsOwn(p.Source) && !covered(all, p.Source) {
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b bind) int { return len(a.Target) - len(b.Target) })
	return all
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// covered reports whether the path is the same file in the VM as here.
func covered(binds []bind, path string) bool {
	return slices.ContainsFunc(binds, func(b bind) bool { return b.Source == b.Target && below(path, b.Source) })
}

func below(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// An image has its own of these. Directories of the first kind stay the image's with all below them; those of the
// second are the image's, and a job's own directory may lie in them, as HTCondor's below /var/lib do.
var (
	systemTrees = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run",
		"/sbin", "/sys", "/usr", "/var/run"}
	systemDirs = []string{"/", "/media", "/mnt", "/opt", "/srv", "/tmp", "/var", "/var/cache", "/var/lib", "/var/log",
		"/var/spool", "/var/tmp"}
)

// hostsOwn reports whether a directory is a system's, which the VM has its own of, and not its users'.
func hostsOwn(dir string) bool { return slices.Contains(systemDirs, dir) || inSystemTree(dir) }

func inSystemTree(path string) bool {
	return slices.ContainsFunc(systemTrees, func(tree string) bool { return below(path, tree) })
}

// imagesOwn reports whether a file is a program of a system, and not its users'. /opt counts as a whole: what
// lies there belongs to libraries beside it.
func imagesOwn(path string) bool { return inSystemTree(path) || below(path, "/opt") }

// jobPlaces are the directories that the batch system makes for one job.
func jobPlaces(w *batch.Wrapper, getenv func(string) string) []bind {
	if w.Places == nil {
		return nil
	}
	var places []bind
	for _, p := range w.Places(getenv) {
		places = append(places, bind{Bind: farm.Bind{Source: p.Dir, ReadOnly: p.ReadOnly}})
	}
	return places
}
