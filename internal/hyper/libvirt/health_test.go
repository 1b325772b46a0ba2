package libvirt

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestWhySlow(t *testing.T) {
	no := errors.New("denied")
	for name, c := range map[string]struct {
		asRoot, asQEMU error
		want           string
	}{
		"root alone":       {nil, no, openKVM},
		"KVM does not run": {nil, nil, "private-libvirtd"},
		"no KVM":           {no, no, "see its log"},
	} {
		if got := whySlow(12*time.Second, c.asRoot, c.asQEMU, 64055); !strings.Contains(got, "12 s for each request") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestOpens(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skip opens: to become somebody else needs root")
	}
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "device")
	const nobody, nogroup = 65534, 65534
	for _, c := range []struct {
		mode os.FileMode
		may  bool
	}{{0o600, false}, {0o666, true}, {0o444, false}} {
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, c.mode)); err != nil {
			t.Fatal(err)
		}
		if err := opens(path, nobody, nogroup); (err == nil) != c.may {
			t.Errorf("mode %v: %v", c.mode, err)
		}
		if err := opens(path, os.Getuid(), os.Getgid()); err != nil {
			t.Errorf("mode %v, as root: %v", c.mode, err)
		}
	}
}
