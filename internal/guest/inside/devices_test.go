package inside

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOpenDevices(t *testing.T) {
	dev := t.TempDir()
	for _, name := range []string{"fuse", "null"} {
		if err := os.WriteFile(filepath.Join(dev, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	openDevices(dev)
	for name, want := range map[string]os.FileMode{"fuse": 0o666, "null": 0o600} {
		if info, err := os.Stat(filepath.Join(dev, name)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

func TestNameHost(t *testing.T) {
	hosts := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 { // another job of the same VM
		if err := nameHost(hosts, "grange-7"); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(hosts); err != nil || string(text) != "127.0.0.1 localhost\n127.0.1.1 grange-7\n" {
		t.Errorf("%q, %v", text, err)
	}
}
