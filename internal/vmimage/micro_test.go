package vmimage

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// testGuest builds the program of testdata/init.
func testGuest(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "init")
	cmd := exec.Command("go", "build", "-o", out, "./testdata/init")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

func TestBuildMicro(t *testing.T) {
	dir := os.Getenv("GRANGE_TEST_STORE")
	if dir == "" {
		dir = t.TempDir()
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	o := BuildOptions{GuestBinary: testGuest(t), Progress: func(text string) { t.Log(text) }}
	first, err := s.BuildMicro(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", first)
	again, err := s.BuildMicro(t.Context(), o)
	if err != nil || again.Digest != first.Digest {
		t.Fatalf("built again: %v, %v; want %v", again.Digest, err, first.Digest)
	}
}
