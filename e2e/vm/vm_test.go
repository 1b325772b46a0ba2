package vm

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/lab"
)

// TestVMCommands looks at a running VM and ends it.
func TestVMCommands(t *testing.T) {
	j := start(t, host, "--", "sh", "-c", "echo up; echo console words > /dev/console; sleep 1000")
	name := vmName(t)
	show := func(args ...string) string {
		t.Helper()
		r := run(t, host.Grange(ctx(t), args...), "")
		if r.code != 0 {
			t.Errorf("grange %v: status %d: %s", args, r.code, r.errors)
		}
		return r.out
	}
	eventually(t, "what the guest wrote is on its console",
		func() bool { return strings.Contains(show("vm", "console", name), "console words") })
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"vm", "list"}, []string{name, "running", "root", "sh", "micro"}},
		{[]string{"vm", "show", name}, []string{"vCPU 0", "accelerator", lab.Accelerator()}},
		{[]string{"host", "show"}, []string{"socket 0", "1 VMs"}},
		{[]string{"image", "list"}, []string{"micro", "kernel"}},
		{[]string{"__complete", "vm", "stop", ""}, []string{name}},
		{[]string{"__complete", "exec", "--image", ""}, []string{"micro"}},
	} {
		out := show(c.args...)
		for _, s := range c.says {
			if !strings.Contains(out, s) {
				t.Errorf("grange %v does not say %q:\n%s", c.args, s, out)
			}
		}
	}
	for _, args := range [][]string{{"vm", "list"}, {"vm", "show", name}, {"vm", "console", name}, {"host", "show"},
		{"image", "list"}} {
		if out := show(append(args, "--json")...); !json.Valid([]byte(out)) {
			t.Errorf("grange %v --json: %s", args, out)
		}
	}
	if lab.Accelerator() == "tcg" {
		if out := show("vm", "show", name); !strings.Contains(out, "CPU model maximum") {
			t.Errorf("vm show hides what was applied:\n%s", out)
		}
	}
	if r := run(t, host.Grange(ctx(t), "image", "rm", "micro"), ""); r.code == 0 ||
		!strings.Contains(r.errors, "used by a VM") {
		t.Errorf("an image in use was removed: %s", r.errors)
	}
	show("vm", "stop", name)
	if r := j.finish(t); r.code != 198 || !strings.Contains(r.errors, "stopped by order") {
		t.Errorf("status %d, %q", r.code, r.errors)
	}
}

// TestOthersVM: an ordinary user sees that others have VMs, and can neither read their consoles nor end them.
func TestOthersVM(t *testing.T) {
	start(t, host, "--", "sh", "-c", "echo up; sleep 1000")
	name := vmName(t)
	for _, args := range [][]string{{"vm", "stop", name}, {"vm", "console", name}, {"image", "rm", "micro"},
		{"image", "build", "micro"}} {
		cmd := host.Grange(ctx(t), args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
		cmd.Dir = "/"
		if r := run(t, cmd, ""); r.code != 1 || !strings.Contains(r.errors, "try:") {
			t.Errorf("%v: status %d: %s", args, r.code, r.errors)
		}
	}
}

func TestKeep(t *testing.T) {
	r := grange(t, "--keep", "--", "sh", "-c", "exit 5")
	r.want(t, 5, "")
	await(t, host, "a kept VM", hasState("kept"))
	name := vmName(t)
	host.KillAgent()
	if err := host.StartAgent(ctx(t)); err != nil {
		t.Fatal(err)
	}
	await(t, host, "a VM that is kept over a restart", hasState("kept"))
	run(t, host.Grange(ctx(t), "vm", "stop", name), "").want(t, 0, name+" stopped\n")
	if left := host.Leaks(ctx(t)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestJSONEvents(t *testing.T) {
	r := grange(t, "--json", "--", "sh", "-c", "echo out; exit 3")
	r.want(t, 3, "out\n")
	seen := map[string]bool{}
	for line := range strings.Lines(r.errors) {
		var e struct {
			Event string
			Phase *api.Phase
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		seen[e.Event] = true
		if e.Phase != nil {
			seen[e.Phase.Name] = true
		}
	}
	for _, want := range []string{"vm", "ready", "running", "result", "grant", "image", "disk", "define", "boot",
		"guest", "job"} {
		if !seen[want] {
			t.Errorf("no %s in %s", want, r.errors)
		}
	}
}

// reload gives the agent another configuration and waits for its word on it.
func reload(t *testing.T, config, word string) {
	t.Helper()
	before := strings.Count(host.AgentLog(), word)
	if err := host.Configure(config); err != nil {
		t.Fatal(err)
	}
	host.SignalAgent(syscall.SIGHUP)
	for c := ctx(t); strings.Count(host.AgentLog(), word) == before; time.Sleep(10 * time.Millisecond) {
		if c.Err() != nil {
			t.Fatalf("the agent never logged %q", word)
		}
	}
}

// TestReload changes the configuration under a running job: a hook, a fact, and an unknown key that is refused.
func TestReload(t *testing.T) {
	hook := filepath.Join(t.TempDir(), "hook")
	if err := os.WriteFile(hook, []byte("#!/bin/sh\nid -u > /tmp/hooked\necho $GRANGE_SITE >> /tmp/hooked\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	defer reload(t, testConfig, "configuration reloaded")
	reload(t, fmt.Sprintf("hook = %q\n[facts]\nsite = \"test\"\n", hook), "configuration reloaded")
	grange(t, "--", "cat", "/tmp/hooked").want(t, 0, "0\ntest\n")
	reload(t, "nosuch = 1\n", "configuration not reloaded")
	grange(t, "--", "cat", "/tmp/hooked").want(t, 0, "0\ntest\n") // the last good one holds

	if err := os.WriteFile(hook, []byte("#!/bin/sh\necho no licence >&2; exit 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := grange(t, "--", "echo", "no"); r.code != 199 || r.out != "" || !strings.Contains(r.errors, "no licence") {
		t.Errorf("a failing hook: status %d, %q, %q", r.code, r.out, r.errors)
	}
}

func TestTwoAgents(t *testing.T) {
	r := run(t, host.Grange(ctx(t), "agent", "--config", host.Config), "")
	if r.code != 1 || !strings.Contains(r.errors, "another agent runs") {
		t.Errorf("status %d: %s", r.code, r.errors)
	}
	if _, err := host.Client.VMs(ctx(t)); err != nil {
		t.Errorf("the first agent suffered: %v", err)
	}
}

// TestSilentGuest boots an image whose init never speaks: bounded, tried again, reported with the console's end.
func TestSilentGuest(t *testing.T) {
	micro, err := host.RawGuest()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, from := range map[string]string{"vmlinux": micro.Kernel, "initrd": "/dev/null"} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if name == "initrd" { // an empty archive: no init
			text = []byte(strings.Repeat("070701"+strings.Repeat("0", 87)+"B00000000TRAILER!!!\x00", 1))
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "cmdline"),
		[]byte("quiet console=ttyS0 panic=-1 cryptomgr.notests no_timer_check"), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := run(t, host.Grange(ctx(t), "image", "import", "--name", "silent", dir), ""); r.code != 0 {
		t.Fatal(r.errors)
	}
	r := grange(t, "--image", "silent", "--memory", "256M", "--", "true")
	if r.code != 199 || strings.Count(r.errors, "retry") != 2 || !strings.Contains(r.errors, "in a kernel panic") {
		t.Errorf("status %d, want 199 after two retries, with the panic: %s", r.code, r.errors)
	}
	run(t, host.Grange(ctx(t), "image", "rm", "silent"), "").want(t, 0, "silent removed\n")
}

// TestHostileImages are refused before QEMU sees them.
func TestHostileImages(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	header := func(backing uint64) []byte { // version 3, 1 GiB, 64 KiB clusters
		h := make([]byte, 1<<17)
		copy(h, "QFI\xfb\x00\x00\x00\x03")
		h[15] = byte(backing)
		h[23], h[28] = 16, 0x40
		copy(h[backing:], "/etc/shadow")
		return h
	}
	for path, says := range map[string]string{
		write("backing.qcow2", header(104)):            "backing",
		write("truncated.qcow2", header(0)[:40]):       "",
		write("text.raw", []byte("not a disk at all")): "",
		filepath.Join(dir, "nosuch.qcow2"):             "",
	} {
		r := run(t, host.Grange(ctx(t), "image", "import", path), "")
		if r.code != 1 || !strings.Contains(r.errors, says) || !strings.Contains(r.errors, "try:") {
			t.Errorf("%s: status %d: %s", path, r.code, r.errors)
		}
	}
}
