package hostfacts

import (
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hosttree"
)

// versions reads what hosttree asked the programs.
func (r *reader) versions() farm.Versions {
	var v hosttree.Versions
	r.json(hosttree.VersionsPath, &v)
	return farm.Versions{QEMU: v.QEMU, Libvirt: v.Libvirt}
}

func (r *reader) hostName() string {
	for _, path := range []string{"proc/sys/kernel/hostname", "etc/hostname"} {
		if name := r.word(path); name != "" && name != "(none)" {
			return name
		}
	}
	return ""
}

// os reads /etc/os-release, or the release file of before 2012.
func (r *reader) os() farm.OSRelease {
	for _, path := range []string{"etc/os-release", "usr/lib/os-release"} {
		if text, ok := r.Text(path); ok {
			set := map[string]string{}
			assignments(text, set)
			return farm.OSRelease{ID: set["ID"], Version: set["VERSION_ID"], Name: set["PRETTY_NAME"]}
		}
	}
	// "Scientific Linux CERN SLC release 6.7 (Carbon)"
	for _, path := range []string{"etc/redhat-release", "etc/system-release"} {
		name := r.word(path)
		if before, after, ok := strings.Cut(name, " release "); ok {
			id := "rhel"
			for word, known := range map[string]string{"CentOS": "centos", "Scientific": "scientific",
				"Fedora": "fedora"} {
				if strings.Contains(before, word) {
					id = known
				}
			}
			version, _, _ := strings.Cut(after, " ")
			return farm.OSRelease{ID: id, Version: version, Name: name}
		}
	}
	return farm.OSRelease{}
}
