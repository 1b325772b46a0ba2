package libvirt_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/hyper/libvirt"
	"github.com/grange-project/grange/internal/waittest"
)

// husk has libvirt know a machine of ours that has no process, and never will.
func (p *private) husk(t *testing.T, m hyper.Machine) {
	t.Helper()
	text := fmt.Sprintf(`<domain type="qemu"><name>%s</name><uuid>%s</uuid><memory unit="MiB">64</memory><vcpu>1</vcpu>
		<metadata><grange:vm xmlns:grange="%s">%s</grange:vm></metadata><os><type arch="x86_64" machine="pc">hvm</type></os>
		<devices><serial type="unix"><source mode="bind" path="%s"/></serial></devices></domain>`, m.Name, m.ID, "https://grange.dev/xmlns/vm/1", base64.StdEncoding.EncodeToString(m.Metadata), m.Console)
	path := filepath.Join(t.TempDir(), "domain.xml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	p.virsh(t, "define", path)
}

func (p *private) virsh(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	argv := append([]string{"-q", "-c", "qemu:///system?socket=" + filepath.Join(p.dir, "run/libvirt-sock")}, args...)
	out, err := exec.CommandContext(ctx, "virsh", argv...).CombinedOutput()
	if err != nil {
		t.Fatalf("virsh %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// stick has libvirt refuse to drop a machine, after a moment.
func (p *private) stick(t *testing.T, m hyper.Machine) (release func()) {
	p.husk(t, m)
	p.proxy.Stick(time.Second)
	return func() {
		p.virsh(t, "undefine", m.Name)
		if err := p.proxy.Flow(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestManyStuck has twenty machines that libvirt does not drop, each after the 30 seconds that libvirt takes to say so.
func TestManyStuck(t *testing.T) {
	p := startLibvirtd(t)
	h := p.open(t)
	const many = 20
	for range many {
		p.husk(t, p.machine(t, sleeps))
	}
	p.proxy.Stick(30 * time.Second)
	began := time.Now()
	if err := h.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := p.machine(t, sleeps)
	if _, err := h.Start(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if found, err := h.List(t.Context()); err != nil || len(found) != 1 {
		t.Errorf("List is %v, %v; want the one machine that runs", found, err)
	}
	if err := h.Stop(t.Context(), m.ID); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 25*time.Second {
		t.Errorf("all of it took %v beside machines that are stuck", took)
	}
	for _, name := range strings.Fields(p.virsh(t, "list", "--all", "--name")) {
		if name != m.Name {
			p.virsh(t, "undefine", name)
		}
	}
}

// TestHungDaemon has a libvirtd that accepts and never answers, is slow, refuses and comes back: nobody waits longer
// than they want, and the same hypervisor works again at the end.
func TestHungDaemon(t *testing.T) {
	p := startLibvirtd(t)
	h := p.open(t)
	list := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		began := time.Now()
		_, err := h.List(ctx)
		if took := time.Since(began); took > limit+5*time.Second {
			t.Errorf("List took %v, %v were given to it", took, limit)
		}
		return err
	}
	away := func(what string, err error) {
		t.Helper()
		if !farm.IsCode(err, hyper.CodeAway) {
			t.Errorf("%s: got %v, want %s", what, err, hyper.CodeAway)
		}
	}
	works := func(what string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
			err := list(20 * time.Second)
			if err == nil {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}

	p.proxy.Stall() // before the first connection
	away("never answered", list(time.Second))
	flow := func() {
		t.Helper()
		if err := p.proxy.Flow(); err != nil {
			t.Fatal(err)
		}
	}
	flow()
	works("flows again")

	p.proxy.Stall() // under a connection
	away("stopped answering", list(time.Second))
	flow()
	works("answers again")

	p.proxy.Delay(3 * time.Second)
	if err := list(30 * time.Second); err != nil {
		t.Errorf("answers that take three seconds: %v", err)
	}
	flow()

	p.proxy.Refuse()
	away("refused", list(time.Second)) // perhaps by the loss of the connection
	away("refused", list(time.Second))
	if d := h.Daemon(); d.Away == "" || d.Since.IsZero() {
		t.Errorf("a daemon that refuses is shown as %+v", d)
	}
	flow()
	works("takes connections again")
	if d := h.Daemon(); d.Away != "" {
		t.Errorf("a daemon that answers is shown as away: %s", d.Away)
	}

	pid := p.pid(t) // the daemon itself, stopped
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(pid, syscall.SIGCONT)
	away("SIGSTOP", list(time.Second))
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	works("SIGCONT")
}

// TestNobodyAnswers needs no libvirt: a socket that accepts, and nothing else.
func TestNobodyAnswers(t *testing.T) {
	dir := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	h, err := libvirt.New(libvirt.Config{Socket: filepath.Join(dir, "s"), RunDir: dir, Accelerator: libvirt.TCG})
	if err != nil {
		t.Fatal(err)
	}
	events := h.Events(t.Context())
	for _, f := range []func(context.Context) error{
		h.Sweep,
		func(ctx context.Context) error { _, err := h.List(ctx); return err },
		func(ctx context.Context) error { _, _, err := h.QEMUOwner(ctx); return err },
		func(ctx context.Context) error { return h.Resume(ctx, newID()) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if err := f(ctx); !farm.IsCode(err, hyper.CodeAway) {
			t.Errorf("got %v, want %s", err, hyper.CodeAway)
		}
		cancel()
	}
	if err := h.Stop(t.Context(), newID()); err != nil {
		t.Errorf("Stop needs no daemon: %v", err)
	}
	closed := make(chan struct{})
	go func() { h.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(waittest.Limit):
		t.Fatal("Close waits for a daemon that never answers")
	}
	if _, open := <-events; open {
		t.Error("events go on")
	}
}

// TestSlowDaemon shows how long libvirt takes where that is long each time, not where it was long once.
func TestSlowDaemon(t *testing.T) {
	p := startLibvirtd(t)
	p.proxy.Delay(2500 * time.Millisecond)
	h := p.open(t)
	if _, _, err := h.QEMUOwner(t.Context()); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for h.Daemon().Slow == "" && time.Now().Before(deadline) {
		time.Sleep(50 * time.Millisecond)
	}
	if d := h.Daemon(); !strings.Contains(d.Slow, "for each request") || d.Answer < 2*time.Second {
		t.Errorf("a libvirt that takes 2.5 s for each answer is shown as %+v", d)
	}
}
