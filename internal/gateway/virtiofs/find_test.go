package virtiofs

import (
	"testing"
	"testing/fstest"

	"github.com/grange-project/grange/internal/farm"
)

func TestFind(t *testing.T) {
	fs := &fstest.MapFile{Data: []byte(`{"description": "x", "type": "fs", "binary": "/opt/virtiofsd"}`)}
	gpu := &fstest.MapFile{Data: []byte(`{"type": "gpu", "binary": "/opt/gpu"}`)}
	program := &fstest.MapFile{}
	for name, c := range map[string]struct {
		files fstest.MapFS
		want  string
	}{
		"described": {fstest.MapFS{"usr/share/qemu/vhost-user/50-fs.json": fs}, "/opt/virtiofsd"},
		"another's": {fstest.MapFS{"usr/share/qemu/vhost-user/10-gpu.json": gpu}, ""},
		"beside": {fstest.MapFS{"usr/share/qemu/vhost-user/10-gpu.json": gpu, "usr/lib/qemu/virtiofsd": program},
			"/usr/lib/qemu/virtiofsd"},
		"the site's":    {fstest.MapFS{"etc/qemu/vhost-user/1.json": fs, "usr/libexec/virtiofsd": program}, "/opt/virtiofsd"},
		"not described": {fstest.MapFS{"usr/libexec/virtiofsd": program}, "/usr/libexec/virtiofsd"},
		"broken":        {fstest.MapFS{"etc/qemu/vhost-user/1.json": {Data: []byte("{")}}, ""},
		"none":          {fstest.MapFS{}, ""},
	} {
		got, err := find(c.files)
		if got != c.want || (err == nil) != (c.want != "") || err != nil && !farm.IsCode(err, farm.CodeNoGateway) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestSupported(t *testing.T) {
	if err := supported("/p", "virtiofsd version 7.2.22 (Debian 1:7.2)\nCopyright\n"); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"virtiofsd 1.13.2\n", "", "\x00"} {
		if err := supported("/p", text); !farm.IsCode(err, farm.CodeNoGateway) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
