package libvirt

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rpc "github.com/digitalocean/go-libvirt"
)

func TestWhySlow(t *testing.T) {
	no := errors.New("denied")
	for name, c := range map[string]struct {
		asRoot, asQEMU error
		emulated       bool
		want           string
	}{
		"root alone":                       {nil, no, false, openKVM},
		"KVM does not run":                 {nil, nil, true, "private-libvirtd"},
		"a host that boots, and KVM works": {nil, nil, false, "see its log"},
		"no KVM":                           {no, no, true, "see its log"},
	} {
		got := whySlow(12*time.Second, c.asRoot, c.asQEMU, 64055, c.emulated)
		if !strings.Contains(got, "12 s for each request") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestLost: only a connection that broke is worth another one.
func TestLost(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{fmt.Errorf("read libvirt's capabilities: %w", net.ErrClosed), true},
		{fmt.Errorf("read libvirt's version: %w", rpc.ErrInterrupted), true},
		{fmt.Errorf("read libvirt's version: %w", rpc.Error{Message: "no"}), false},
		{errors.New("no answer within 3m0s"), false},
	} {
		if got := lost(c.err); got != c.want {
			t.Errorf("%v: %t", c.err, got)
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
