// Package metallab runs whole hosts for tests: Debian with its own kernel, systemd, libvirt, AppArmor and boot loader,
// on an emulated machine of two sockets, two cores each, two threads each, two NUMA nodes, whose KVM works (QEMU
// emulates AMD's SVM). A host that has booted once is kept as a snapshot, from which others start in two seconds. It
// needs root and what `scripts/install-packages hosts` installs.
package metallab

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/crypto/ssh"
)

// Suites are the releases of Debian that hosts can be of.
var Suites = []string{"bookworm", "trixie"}

// Lab is the directory where disks, snapshots and hosts lie: $GRANGE_TEST_HOSTS, or a directory that is kept.
type Lab struct {
	Dir string
	key ssh.Signer
}

// Open makes the directory and the key of the hosts' root where they are missing.
func Open() (*Lab, error) {
	if os.Getuid() != 0 {
		return nil, errors.New("emulated hosts need root: their trees are made by it")
	}
	l := &Lab{Dir: cmp.Or(os.Getenv("GRANGE_TEST_HOSTS"), "/var/tmp/grange-test-hosts")}
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.Chmod(l.Dir, 0o700); err != nil { // fails where it is somebody else's
		return nil, err
	}
	unlock, err := l.lock("key.lock") // tests that run at a time open the same new directory
	if err != nil {
		return nil, err
	}
	defer unlock()
	if l.key, err = loadKey(l.KeyFile()); errors.Is(err, os.ErrNotExist) {
		l.key, err = newKey(l.KeyFile())
	}
	return l, err
}

// lock waits for a lock file and takes it.
func (l *Lab) lock(name string) (unlock func() error, err error) {
	f, err := os.OpenFile(l.path(name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}

// KeyFile is the private key of the hosts' root, in OpenSSH's form.
func (l *Lab) KeyFile() string { return l.path("key") }

func (l *Lab) path(names ...string) string {
	return filepath.Join(append([]string{l.Dir}, names...)...)
}

func loadKey(name string) (ssh.Signer, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return ssh.ParsePrivateKey(text)
}

func newKey(name string) (ssh.Signer, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return nil, err
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(name+".pub", ssh.MarshalAuthorizedKey(signer.PublicKey()), 0o644); err != nil {
		return nil, err
	}
	return signer, os.WriteFile(name, pem.EncodeToMemory(block), 0o600)
}

// disk is the path of the disk that hosts of a suite begin with. It is made when there is none, or an old one.
func (l *Lab) disk(ctx context.Context, suite string) (string, error) {
	return script(ctx, "host-disk", suite, l.Dir, l.KeyFile()+".pub")
}

// script runs one of the source tree's and returns what it printed; what it says meanwhile goes to our standard error.
func script(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(Source(), "scripts", name), args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Source is the tree that this program was built from.
func Source() string {
	_, source, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(source), "../../..")
}

// Running are the hosts that run, those of earlier programs too. What is left of others is removed.
func (l *Lab) Running(ctx context.Context) ([]*Host, error) {
	dirs, err := filepath.Glob(l.path("run", "*"))
	if err != nil {
		return nil, err
	}
	var hosts []*Host
	for _, dir := range dirs {
		h := &Host{Name: filepath.Base(dir), Dir: dir, lab: l}
		conn, err := net.Dial("unix", h.socket())
		if err != nil {
			os.RemoveAll(dir)
			continue
		}
		conn.Close()
		text, err := os.ReadFile(h.path("port"))
		if err != nil {
			return nil, err
		}
		if h.port, err = strconv.Atoi(string(text)); err != nil {
			return nil, err
		}
		hosts = append(hosts, h)
	}
	return hosts, nil
}

// Stop ends a host of another program's and removes what it has written.
func (h *Host) Stop(ctx context.Context) (err error) {
	if h.monitor, err = dialMonitor(ctx, h.socket()); err != nil {
		return err
	}
	h.monitor.quit()
	h.monitor = nil
	return os.RemoveAll(h.Dir)
}
