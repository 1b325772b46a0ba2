package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/grange-project/grange/internal/batch"
)

// checkForeign looks at the plug-ins of others in plugstack.conf. A required one that does not load ends every job of
// the host, so grange's line is not the only one that counts.
func checkForeign(s Site) []batch.Finding {
	var all []batch.Finding
	seen := 0
	for _, e := range s.Plugstack {
		if filepath.Base(e.Path) == PluginName {
			continue
		}
		seen++
		if why := s.doesNotLoad(e); why != "" && e.Required {
			all = append(all, batch.Finding{Level: batch.Broken, Found: "required " + e.Path + " " + why,
				Where: e.Where, Why: "Slurm ends every job and step on this host with \"Plug-in initialization failed\"",
				Do: "install the file, or write optional instead of required, or remove the line"})
		}
	}
	if len(all) == 0 {
		all = append(all, batch.Finding{Level: batch.Good, Found: fmt.Sprintf("%d of others", seen),
			Where: s.PlugstackPath})
	}
	return all
}

// doesNotLoad returns why Slurm cannot load a plug-in; "" where it can.
func (s Site) doesNotLoad(e Entry) string {
	name := e.Path
	if !filepath.IsAbs(name) {
		dirs := s.pluginDirs()
		found := s.inPluginDir(dirs, name)
		if found == "" {
			return "is missing in " + strings.Join(dirs, ":")
		}
		name = found
	}
	file, err := s.Root.Open(below(name))
	if errors.Is(err, fs.ErrNotExist) {
		return "is missing"
	}
	if err != nil {
		return "cannot be read: " + err.Error()
	}
	file.Close()
	r, err := s.releaseOf(name)
	switch {
	case err != nil:
		return "is not a plug-in: " + err.Error()
	case s.Slurmd != (Release{}) && r != (Release{}) && !r.Same(s.Slurmd):
		return fmt.Sprintf("is for Slurm %v, and slurmd is %v", r, s.Slurmd)
	}
	return ""
}

// below returns an absolute path as the fs.FS of the root directory has it.
func below(name string) string { return strings.TrimPrefix(path.Clean(name), "/") }

// inPluginDir returns the first file of that name in PluginDir, where Slurm looks for relative names; "" where it is in
// none.
func (s Site) inPluginDir(dirs []string, name string) string {
	for _, dir := range dirs {
		if _, err := fs.Stat(s.Root, below(filepath.Join(dir, name))); err == nil {
			return filepath.Join(dir, name)
		}
	}
	return ""
}

// packagedPlugins are where packages of Debian and Red Hat, and Slurm's own `make install`, put plug-ins.
var packagedPlugins = []string{"usr/lib/*/slurm-wlm", "usr/lib/*/slurm", "usr/lib64/slurm", "usr/lib/slurm",
	"usr/lib/slurm-wlm", "usr/local/lib/slurm", "usr/local/lib64/slurm"}

// pluginDirs are the directories of PluginDir. Where slurm.conf does not set it, the directory was compiled into Slurm:
// these are the usual ones, that beside a running slurmd, and that beside the directory of slurm.conf.
func (s Site) pluginDirs() []string {
	if set := s.Slurm.Get("PluginDir"); set != "" {
		return strings.Split(set, ":")
	}
	var dirs []string
	for _, pattern := range append(s.besideSlurm(), packagedPlugins...) {
		some, _ := fs.Glob(s.Root, pattern)
		for _, dir := range some {
			dirs = append(dirs, "/"+dir)
		}
	}
	if len(dirs) == 0 {
		return []string{"PluginDir"}
	}
	return dirs
}

// besideSlurm are directories of plug-ins below the prefix for which Slurm was built: PREFIX/etc/slurm.conf and a
// running slurmd show it.
func (s Site) besideSlurm() []string {
	prefixes := []string{filepath.Dir(filepath.Dir(s.Slurm.Path))}
	for _, dir := range s.slurmds() {
		if exe, err := fs.ReadLink(s.Root, dir+"/exe"); err == nil {
			prefixes = append(prefixes, filepath.Dir(filepath.Dir(exe)))
		}
	}
	var all []string
	for _, prefix := range prefixes {
		for _, lib := range []string{"lib/slurm", "lib64/slurm"} {
			all = append(all, below(filepath.Join(prefix, lib)))
		}
	}
	return all
}

// releaseOf reads for which Slurm a plug-in below Root was compiled.
func (s Site) releaseOf(name string) (Release, error) {
	text, err := fs.ReadFile(s.Root, below(name))
	if err != nil {
		return Release{}, err
	}
	return releaseIn(text)
}
