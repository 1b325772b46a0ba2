package cli

import (
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/gateway"
)

func TestBindOptions(t *testing.T) {
	b, err := parseBind("/data:/in:ro:suid")
	if err != nil || b.dir != "/data" || b.Bind != (api.Bind{Target: "/in", ReadOnly: true}) {
		t.Fatalf("%+v, %v", b, err)
	}
	if got := b.options(true); got != (gateway.Options{ReadOnly: true, SetID: true, OneFileSystem: true}) {
		t.Errorf("%+v", got)
	}
	if got := b.text(); got != "/data:/in:ro:suid" {
		t.Error(got)
	}
	for _, text := range []string{"/", "/:ro", "/data:/", "/data:in"} {
		if _, err := parseBind(text); !farm.IsCode(err, farm.CodeUsage) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestBindOfKernelFiles: the request makes no sense, on this host or any other.
func TestBindOfKernelFiles(t *testing.T) {
	r := newRunner(&app{}, api.JobRequest{}, []bindSource{{dir: "/proc", Bind: api.Bind{Target: "/x"}}})
	err := r.openBinds()
	if !farm.IsCode(err, CodeBindRefused) || !strings.Contains(err.Error(), "/proc is on proc") {
		t.Fatal(err)
	}
	if got := r.unpreparedStatus(err); got != exitUsage {
		t.Errorf("status %d", got)
	}
	if own := new(farm.Error); !errors.As(err, &own) || own.Hint == "" {
		t.Error(err)
	}
}

// TestOneFilesystemIsKept: what one agent says of a job's binds the next one does not take back.
func TestOneFilesystemIsKept(t *testing.T) {
	r := newRunner(&app{}, api.JobRequest{}, nil)
	link := jobPort(t)
	for _, vm := range []api.VM{{ID: "a", JobPort: link, OneFilesystem: true}, {ID: "b", JobPort: link}} {
		if err := r.connect(&vm); err != nil || !r.oneFS {
			t.Fatal(vm.ID, err, r.oneFS)
		}
	}
}

// jobPort is a job port that takes connections and says nothing.
func jobPort(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "port")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return path
}
