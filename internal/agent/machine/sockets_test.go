package machine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/grange-project/grange/internal/hyper"
)

// A VM's sockets are its owner's alone: others may have its group.
func TestCloseSockets(t *testing.T) {
	dir := t.TempDir()
	spec := hyper.Machine{Console: filepath.Join(dir, "console"), Ports: []hyper.Port{{Path: filepath.Join(dir, "port")},
		{Path: filepath.Join(dir, "none")}}}
	for _, path := range []string{spec.Console, spec.Ports[0].Path} {
		if err := os.WriteFile(path, nil, 0o775); err != nil {
			t.Fatal(err)
		}
	}
	if err := CloseSockets(spec); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{spec.Console, spec.Ports[0].Path} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", path, info.Mode(), err)
		}
	}
}
