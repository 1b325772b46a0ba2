package hostfacts

import (
	"path"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
)

// sysctlDirs are where settings for the boot are, the first that has a file of a name counts.
var sysctlDirs = []string{"etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d", "lib/sysctl.d"}

const (
	sysctlConf     = "etc/sysctl.conf" // read last by procps
	mostSysctlFile = 256
)

// pageLine is a line of sysctl.d that sets the number of huge pages; a "-" before it lets it fail.
var pageLine = lazyregexp.New(`^-?\s*vm[./]nr_hugepages\s*=\s*(\d+)\s*$`)

// pageSettings reads which files of sysctl.d set the number of huge pages of the default size, in the order in which
// they are applied.
func (r *reader) pageSettings() []farm.PagesSetting {
	files := map[string]string{} // by name
	var names []string
	for _, dir := range sysctlDirs {
		for _, name := range r.Names(dir) {
			if strings.HasSuffix(name, ".conf") && files[name] == "" && len(names) < mostSysctlFile {
				files[name], names = path.Join(dir, name), append(names, name)
			}
		}
	}
	slices.Sort(names)
	var out []farm.PagesSetting
	for _, name := range names {
		out = append(out, r.pageSettingsIn(files[name])...)
	}
	return append(out, r.pageSettingsIn(sysctlConf)...)
}

func (r *reader) pageSettingsIn(file string) (out []farm.PagesSetting) {
	for _, line := range r.lines(file) {
		if m := pageLine.FindStringSubmatch(line); m != nil {
			out = append(out, farm.PagesSetting{File: file, Value: m[1]})
		}
	}
	return out
}

// cleanSysctl keeps of a file of sysctl.d what pageSettings reads.
func cleanSysctl(text []byte) []byte {
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		if pageLine.MatchString(strings.TrimSpace(line)) {
			out.WriteString(line)
		}
	}
	return []byte(out.String())
}

func isSysctl(file string) bool {
	return file == sysctlConf || slices.Contains(sysctlDirs, path.Dir(file))
}
