// Package vmimagetest gives tests the micro image with the grange-guest of this source tree. It is for tests only.
package vmimagetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/vmimage"
)

// keep is how long an image stays after a later test built another: a test that runs at the same time may still use it.
const keep = 2 * time.Hour

// Micro builds grange-guest and the micro image and returns it. Packages are downloaded once and kept, with the images,
// below GRANGE_TEST_IMAGES, /var/tmp (root) or the user's cache directory: QEMU's user must get there. It takes about
// four seconds; call it once a test binary. The test fails when the image cannot be built.
func Micro(t testing.TB) vmimage.Image {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	guest := filepath.Join(t.TempDir(), "grange-guest")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", guest, "./cmd/grange-guest")
	cmd.Dir = filepath.Join(filepath.Dir(here), "..", "..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building grange-guest: %v\n%s", err, text)
	}
	s := Store(t)
	i, err := s.BuildMicro(t.Context(),
		vmimage.BuildOptions{GuestBinary: guest, Progress: func(text string) { t.Log(text) }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Purge(func(digest string) bool {
		old, err := s.Get(digest)
		return err == nil && time.Since(old.Created) < keep
	}); err != nil {
		t.Log(err)
	}
	return i
}

// Store opens the store that tests share; it is closed when the test ends.
func Store(t testing.TB) *vmimage.Store {
	t.Helper()
	dir := os.Getenv("GRANGE_TEST_IMAGES")
	if dir == "" {
		// The home directory of root is closed to QEMU's user, so the user's cache directory will not do there.
		dir = filepath.Join("/var/tmp", "grange-test-images")
		if cache, err := os.UserCacheDir(); err == nil && os.Getuid() != 0 {
			dir = filepath.Join(cache, "grange-test-images")
		}
	}
	s, err := vmimage.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
