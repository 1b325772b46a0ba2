package setup

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/grange-project/grange/internal/program"
)

// TestCompileWhere: the plug-in goes where the host's configuration names it, so that an upgrade of Slurm finds no
// second one.
func TestCompileWhere(t *testing.T) {
	for name, c := range map[string]struct{ conf, want string }{
		"not configured": {"", "/usr/lib/grange/grange_spank.so"},
		"the site's own place": {mark + "required /opt/site/grange_spank.so wrapper=/usr/bin/grange\n",
			"/opt/site/grange_spank.so"},
		"a submit host":   {"optional /opt/site/grange_spank.so\n", "/opt/site/grange_spank.so"},
		"a comment":       {"# required /opt/site/grange_spank.so\n", "/usr/lib/grange/grange_spank.so"},
		"another plug-in": {"required /opt/site/x11.so\n", "/usr/lib/grange/grange_spank.so"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			put := func(path, text string) {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			put("/usr/include/slurm/spank.h", "")
			put("/etc/slurm/plugstack.conf.d/grange.conf", c.conf)
			i := Install{Root: root, ConfDir: "/etc/slurm", PluginDir: "/usr/lib/grange"}
			compiler := func(_ context.Context, call program.Call) ([]byte, error) {
				return nil, os.WriteFile(call.Args[len(call.Args)-2], nil, 0o644) // -o FILE SOURCE
			}
			got, err := i.Compile(t.Context(), compiler)
			if err != nil || got != c.want {
				t.Fatalf("%s, %v; want %s", got, err, c.want)
			}
			if _, err := os.Stat(filepath.Join(root, c.want)); err != nil {
				t.Error(err)
			}
		})
	}
}
