package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
)

func TestFileSystems(t *testing.T) {
	s, err := ParseServer([]byte(`
[file_systems.work]
source = "server:/work"
type = "nfs*"
clients = 30
note = "call 4711"
[file_systems.cvmfs]
mount_point = "/cvmfs/*"
`), "t")
	want := []farm.FileSystem{{Name: "cvmfs", Match: farm.FileSystemMatch{MountPoint: "/cvmfs/*"}},
		{Name: "work", Match: farm.FileSystemMatch{Source: "server:/work", Type: "nfs*"}, Budget: 30, Note: "call 4711"}}
	if diff := cmp.Diff(want, s.FileSystems); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for text, want := range map[string]string{
		"[file_systems.\"a b\"]\ntype = \"nfs\"":                        "no file system can be called",
		"[file_systems.a]\nclients = 3":                                 "it is none",
		"[file_systems.a]\ntype = \"nfs\"\nclients = -1":                "invalid number",
		"[file_systems.a]\ntype = \"nfs\"\nnote = \"a\\nb\"":            "one line",
		"[file_systems.a]\ntype = \"nfs\"\nsources = [\"a\"]":           "sources",
		"[file_systems.a]\ntype = \"" + strings.Repeat("x", 201) + "\"": "one line",
	} {
		if _, err := ParseServer([]byte(text), "t"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, which does not say %q", text, err, want)
		}
	}
}
