package metallab

import (
	"crypto/ed25519"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// TestCut distinguishes panics that are the emulator's from those of the host's own kernel.
func TestCut(t *testing.T) {
	const panicked = "[  657.1] Kernel panic - not syncing: corrupted stack end detected inside scheduler\n"
	for name, c := range map[string]struct {
		serial string
		cut    bool
	}{
		"whole trace":  {"[ 1] BUG: unable to handle page fault\n[ 1]  svm_vcpu_run+0x1/0x2\n" + panicked, true},
		"full stack":   {"[ 1] BUG: TASK stack guard page was hit at 00\n[ 1] CPU: 0 PID: 28 Comm: CPU 0/KVM Not\n", true},
		"another task": {"[ 1] BUG: TASK stack guard page was hit at 00\n[ 1] CPU: 0 PID: 28 Comm: sh Not\n", false},
		"stale trap":   {"[ 1] Oops: int3: 0000 [#1] SMP\n[ 1] Code: 0f 1f 44 00 00 e9 <5a> 01\n" + panicked, true},
		"trap":         {"[ 1] int3: 0000 [#1] SMP\n[ 1] Code: 0f 1f 44 00 00 cc <5a> 01\n" + panicked, false},
		"sysrq":        {"[ 1] sysrq: Trigger a crash\n" + panicked, false},
	} {
		h := &Host{Dir: t.TempDir()}
		if err := os.WriteFile(h.path("serial.log"), []byte("Booting\n"+c.serial), 0o600); err != nil {
			t.Fatal(err)
		}
		if !panics.MatchString(c.serial) {
			t.Errorf("%s: nobody takes notice", name)
		}
		h.panicked.Store(true)
		if h.Cut() != c.cut {
			t.Errorf("%s: the emulator's fault: %v", name, !c.cut)
		}
	}
}

// TestSilent: what waits for a host ends when that answers nothing any more, and not while it does.
func TestSilent(t *testing.T) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for _, answers := range []bool{true, false} {
		h := &Host{Dir: t.TempDir(), ended: make(chan struct{}), ssh: connection(t, signer, answers)}
		h.ask(time.Second)
		if h.silent.Load() == answers || (h.connected() != nil) != answers || h.Cut() == answers {
			t.Errorf("a host that answers: %v, and is silent: %v", answers, h.silent.Load())
		}
		if answers {
			continue
		}
		if _, err := h.Run(t.Context(), "true"); !errors.Is(err, ErrSilent) {
			t.Errorf("run there: %v", err)
		}
	}
}

// connection is one to a server that answers requests, or takes them and answers nothing.
func connection(t *testing.T, key ssh.Signer, answers bool) *ssh.Client {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		config := &ssh.ServerConfig{NoClientAuth: true}
		config.AddHostKey(key)
		_, _, requests, err := ssh.NewServerConn(conn, config)
		for r := range requests {
			if answers {
				err = errors.Join(err, r.Reply(false, nil))
			}
		}
		if err != nil {
			t.Error(err)
		}
	}()
	client, err := ssh.Dial("tcp4", listener.Addr().String(),
		&ssh.ClientConfig{HostKeyCallback: ssh.InsecureIgnoreHostKey()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { errors.Join(client.Close(), listener.Close()) })
	return client
}
