package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/grange-project/grange/e2e/metal/metallab"
)

// dist is where the packages lie; "": these tests do not run.
var dist = os.Getenv(packagesVariable)

func TestMain(m *testing.M) {
	status := m.Run()
	if err := writeFacts(); err != nil {
		fmt.Fprintln(os.Stderr, "metal:", err)
		status = 1
	}
	os.Exit(status)
}

// found is what TestHost saw, and what the emulator cut.
var (
	found facts
	cuts  sync.Mutex // of found.Cut
)

func writeFacts() error {
	name := os.Getenv(factsVariable)
	if name == "" {
		return nil
	}
	found.Reboots = int(metallab.Reboots.Load())
	text, err := json.Marshal(found)
	if err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o600)
}

// long skips a test where only the quick ones are wanted.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv(quickVariable) != "" {
		t.Skip("takes minutes; `make test-metal` runs it")
	}
}

// needHosts skips a test that runs without packages.
func needHosts(t *testing.T) {
	t.Helper()
	if dist == "" {
		t.Skip("needs emulated hosts; `make test-metal` runs it")
	}
}

// start returns a host that ends with the test. The packages of the agent are installed, unless o has others or bare is
// wanted.
func start(t *testing.T, o metallab.Options) *metallab.Host {
	t.Helper()
	if o.Debs == nil {
		o.Debs = agentDebs(t)
	}
	return startBare(t, o)
}

// startBare is start of a host as Debian installs it, unless o has packages.
func startBare(t *testing.T, o metallab.Options) *metallab.Host {
	t.Helper()
	room(t, 1)
	return begin(t, o)
}

// slots are the hosts that run at a time: each has more processors than this machine, and those of three hosts on two
// cores take their own kernels' watchdogs for hung.
var slots = semaphore.NewWeighted(int64(max(2, runtime.NumCPU())))

// room waits until a test may have so many hosts, all at once, for tests that wait for their second would wait for each
// other. They are the test's until it ends.
func room(t *testing.T, hosts int64) {
	t.Helper()
	needHosts(t)
	if err := slots.Acquire(t.Context(), hosts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slots.Release(hosts) })
}

// begin is startBare where there is room.
func begin(t *testing.T, o metallab.Options) *metallab.Host {
	t.Helper()
	l, err := metallab.Open()
	if err != nil {
		t.Fatal(err)
	}
	h, err := l.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			if h.Cut() {
				name, _, _ := strings.Cut(t.Name(), "/")
				cuts.Lock()
				found.Cut = append(found.Cut, name)
				cuts.Unlock()
			}
			t.Log(lastWords(h))
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func agentDebs(t *testing.T) []string {
	t.Helper()
	needHosts(t)
	debs, err := metallab.AgentDebs(dist)
	if err != nil {
		t.Fatal(err)
	}
	return debs
}

// lastWords are the ends of a host's logs, for tests that failed.
func lastWords(h *metallab.Host) string {
	ctx, cancel := context.WithTimeoutCause(context.Background(), 30*time.Second,
		errors.New("the host does not answer"))
	defer cancel()
	out, err := h.Run(ctx, "journalctl -q --no-pager -n 40 -u grange-agent -u libvirtd; tail -n 20 "+
		"/var/log/libvirt/qemu/*.log 2>/dev/null || true")
	if err != nil {
		out += "\n" + err.Error()
	}
	return out
}

// bringProgram builds a program of e2e and copies it to the home of root.
func bringProgram(t *testing.T, h *metallab.Host, name string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "./e2e/"+name)
	build.Dir, build.Env = metallab.Source(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	if err := h.Copy(t.Context(), "/root", program); err != nil {
		t.Fatal(err)
	}
}

// run runs a script on the host and fails the test where that fails.
func run(t *testing.T, h *metallab.Host, script string) string {
	t.Helper()
	out, err := h.Run(t.Context(), script)
	if err != nil {
		t.Fatal(err, out)
	}
	return out
}

// query runs a command that prints JSON.
func query[T any](t *testing.T, h *metallab.Host, command string) (value T) {
	t.Helper()
	if err := json.Unmarshal([]byte(run(t, h, command)), &value); err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return value
}

// TestHost shows that the other tests run on what they are for.
func TestHost(t *testing.T) {
	t.Parallel()
	for _, suite := range suites() {
		t.Run(suite, func(t *testing.T) { checkHost(t, suite) })
	}
}

func checkHost(t *testing.T, suite string) {
	h := start(t, metallab.Options{Suite: suite})
	got := run(t, h, "stat -fc %T /sys/fs/cgroup; cat /sys/module/apparmor/parameters/enabled; grange --version")
	if !strings.HasPrefix(got, "cgroup2fs\nY\n") {
		t.Errorf("no cgroup v2 or no AppArmor: %s", got)
	}
	cpu := query[struct {
		Lscpu []struct{ Field, Data string }
	}](t, h, "lscpu --json")
	for _, f := range cpu.Lscpu {
		switch {
		case strings.HasPrefix(f.Field, "NUMA node(s)") && f.Data == "2":
			found.Nodes = 2
		case strings.HasPrefix(f.Field, "Thread(s) per core") && f.Data == "2":
			found.SMT = true
		}
	}
	if found.Nodes != 2 || !found.SMT {
		t.Errorf("not two nodes with two threads a core: %+v", found)
	}
	kind := run(t, h, `set -e
grange exec -- sh -c 'echo up; sleep 600' >/tmp/out &
until grep -q up /tmp/out; do sleep 0.2; kill -0 $!; done
virsh -c qemu:///system dumpxml "$(virsh -c qemu:///system list --name | head -1)" | head -1
kill $!; wait $! || true`)
	if !strings.Contains(kind, "type='kvm'") {
		t.Errorf("VMs do not run on KVM: %s", kind)
	}
	found.KVM = found.KVM || strings.Contains(kind, "type='kvm'")
}

// TestPanic: a test is told when the kernel of its host gives up, and does not wait for a host that is another by then.
func TestPanic(t *testing.T) {
	t.Parallel()
	h := startBare(t, metallab.Options{})
	for _, script := range []string{"echo c >/proc/sysrq-trigger; sleep 600", "true"} {
		if _, err := h.Run(t.Context(), script); !errors.Is(err, metallab.ErrPanicked) ||
			!strings.Contains(err.Error(), "sysrq") {
			t.Errorf("%s: %v", script, err)
		}
	}
}

// TestReset: a host that is reset without a word is not waited for, either.
func TestReset(t *testing.T) {
	t.Parallel()
	h := startBare(t, metallab.Options{})
	if _, err := h.Run(t.Context(), "echo b >/proc/sysrq-trigger; sleep 600"); !errors.Is(err, metallab.ErrReset) ||
		!h.Cut() {
		t.Error(err)
	}
}

// suites are the releases of Debian that tests run on.
func suites() []string {
	if os.Getenv(quickVariable) != "" {
		return metallab.Suites[:1]
	}
	return metallab.Suites
}
