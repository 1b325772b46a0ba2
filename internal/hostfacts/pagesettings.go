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

// sysctlLine is a line of sysctl.d that sets one number of the kernel or its memory; a "-" before it lets it fail.
var sysctlLine = lazyregexp.New(`^-?\s*((?:vm|kernel)[./]\w+)\s*=\s*(\d+)\s*$`)

// pageSettings reads which files of sysctl.d set the number of huge pages of the default size, in the order in which
// they are applied.
func (r *reader) pageSettings() []farm.PagesSetting { return r.sysctlSettings()["vm.nr_hugepages"] }

// sysctlSettings reads which files of sysctl.d set each option, in the order in which they are applied.
func (r *reader) sysctlSettings() map[string][]farm.PagesSetting {
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
	out := map[string][]farm.PagesSetting{}
	read := func(file string) {
		for _, line := range r.lines(file) {
			if m := sysctlLine.FindStringSubmatch(line); m != nil {
				option := strings.ReplaceAll(m[1], "/", ".")
				out[option] = append(out[option], farm.PagesSetting{File: file, Value: m[2]})
			}
		}
	}
	for _, name := range names {
		read(files[name])
	}
	read(sysctlConf)
	return out
}

// cleanSysctl keeps of a file of sysctl.d what sysctlSettings reads.
func cleanSysctl(text []byte) []byte {
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		if sysctlLine.MatchString(strings.TrimSpace(line)) {
			out.WriteString(line)
		}
	}
	return []byte(out.String())
}

func isSysctl(file string) bool {
	return file == sysctlConf || slices.Contains(sysctlDirs, path.Dir(file))
}
