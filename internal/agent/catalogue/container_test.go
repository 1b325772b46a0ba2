package catalogue

import (
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/rootpath"
)

// TestPullPaths: root reads no path for a user that users could change, or that leads out of the entry.
func TestPullPaths(t *testing.T) {
	root, user := &syscall.Stat_t{}, &syscall.Stat_t{Uid: 1000}
	dir, link := fs.ModeDir|0o755, fs.ModeSymlink|0o777
	nowhere := func(string) bool { return false }
	host := rootpath.Resolver{Sealed: nowhere, Users: nowhere, Files: fstest.MapFS{
		".":          {Mode: dir, Sys: root},
		"pull":       {Mode: dir, Sys: root},
		"pull/image": {Mode: dir, Sys: root},
		"pull/root":  {Mode: link, Sys: root, Data: []byte("/root")},
		"root":       {Mode: dir, Sys: root},
		"users":      {Mode: dir, Sys: user},
		"users/mine": {Mode: link, Sys: user, Data: []byte("/root")},
		"users/copy": {Mode: dir, Sys: root},
		"users/x":    {Mode: 0o644, Sys: user},
	}}
	for _, c := range []struct {
		entry, path string
		ok          bool
	}{
		{"dir:/pull/", "/pull/image", true},
		{"dir:/pull/image", "/pull/image", true},
		{"dir:/pull/root", "/pull/root", true}, // the site named it
		{"dir:/pull/", "/pull/root", false},
		{"dir:/users/", "/users/mine", false},
		{"sif:/users/mine", "/users/mine", false},
		{"oci-layout:/users/", "/users/copy", false},
	} {
		_, err := resolve(host, c.entry, c.path)
		if c.ok && err != nil || !c.ok && !farm.IsCode(err, CodeNotFetched) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	faults := strings.Join(CheckPulls(host, []string{"oci://r.example/a/", "dir:/pull/", "dir:/users/", "sif:/users/x",
		"oci-layout:/users/copy:1", "dir:/nothing/"}), "\n")
	for _, entry := range []string{`"dir:/users/"`, `"sif:/users/x"`, `"oci-layout:/users/copy:1"`} {
		if !strings.Contains(faults, entry) {
			t.Errorf("%s is not warned of: %s", entry, faults)
		}
	}
	if strings.Count(faults, "pull_images") != 3 {
		t.Error(faults)
	}
	if Resolve("") != nil {
		t.Error("paths that the site or root names are resolved")
	}
}
