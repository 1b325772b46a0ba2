package runner

import (
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/gateway"
)

func TestBindOptions(t *testing.T) {
	given, err := ParseBind("/data:/in:ro:suid")
	b := bind{Bind: given}
	if got := targets([]bind{b}); err != nil || b.Source != "/data" ||
		!slices.Equal(got, []api.Bind{{Target: "/in", ReadOnly: true, Gateway: "fuse"}}) {
		t.Fatalf("%+v, %v", b, err)
	}
	if got := b.options(true); got != (gateway.Options{ReadOnly: true, SetID: true, OneFileSystem: true}) {
		t.Errorf("%+v", got)
	}
	if got := b.text(); got != "/data:/in:ro:suid" {
		t.Error(got)
	}
	for _, text := range []string{"/", "/:ro", "/data:/", "/data:in"} {
		if _, err := ParseBind(text); !farm.IsCode(err, farm.CodeUsage) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestBindOfKernelFiles: the request makes no sense, on this host or any other.
func TestBindOfKernelFiles(t *testing.T) {
	j := newJob(t, Options{Binds: []farm.Bind{{Source: "/proc", Target: "/x"}}})
	err := j.openBinds()
	if !farm.IsCode(err, CodeBindRefused) || !strings.Contains(err.Error(), "/proc is on proc") {
		t.Fatal(err)
	}
	if got := unpreparedStatus(err); got != exitUsage {
		t.Errorf("status %d", got)
	}
	if own := new(farm.Error); !errors.As(err, &own) || own.Hint == "" {
		t.Error(err)
	}
}

// TestOneFilesystemIsKept: what one agent says of a job's binds the next one does not take back.
func TestOneFilesystemIsKept(t *testing.T) {
	j := newJob(t, Options{})
	link := jobPort(t)
	for _, vm := range []api.VM{{ID: "a", JobPort: link, OneFilesystem: true}, {ID: "b", JobPort: link}} {
		if err := j.connect(&vm); err != nil || !j.oneFS {
			t.Fatal(vm.ID, err, j.oneFS)
		}
	}
}

func newJob(t *testing.T, o Options) *Job {
	t.Helper()
	j, err := New(api.JobRequest{}, o)
	if err != nil {
		t.Fatal(err)
	}
	return j
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
