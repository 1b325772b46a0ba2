package inside

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/grange-project/grange/internal/guest"
)

// TestAddFile: a job's script is there for its user alone, replaces what an earlier task brought, and nothing of the
// image.
func TestAddFile(t *testing.T) {
	dir := t.TempDir()
	u := guest.User{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	path := filepath.Join(dir, "spool", "job1", "script")
	for _, text := range []string{"one", "one", "two"} {
		if err := addFile(guest.File{Path: path, Content: []byte(text), Own: true}, u); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		info, statErr := os.Stat(path)
		if err != nil || statErr != nil || string(got) != text || info.Mode() != 0o700 {
			t.Errorf("%q, %v, %v, want %q for its user alone", got, err, info, text)
		}
	}
	image := filepath.Join(dir, "program")
	if err := os.WriteFile(image, []byte("image"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := addFile(guest.File{Path: image, Content: []byte("job"), Own: true}, u); err != nil {
		t.Error(err)
	}
	if got, _ := os.ReadFile(image); string(got) != "image" {
		t.Errorf("a file of the image was replaced by %q", got)
	}
	for _, bad := range []string{"relative", dir + "/../x"} {
		if addFile(guest.File{Path: bad, Own: true}, u) == nil {
			t.Errorf("%s was written", bad)
		}
	}
}
