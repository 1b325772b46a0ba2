package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/waittest"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("taking rights away needs some: root")
	}
}

// secret is a file of root's, in a directory that others may read.
func secret(t *testing.T, mode os.FileMode) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("the content\n"), mode); err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(path); dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// listen returns a port of this host's loopback where somebody answers.
func listen(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// running is a shell in a sandbox, which waits for a line before it runs the script.
type running struct {
	cmd     *exec.Cmd
	in      *os.File
	out     *bufio.Reader
	release func()
}

func begin(t *testing.T, script string, start func(*exec.Cmd) (func(), error)) *running {
	t.Helper()
	r := &running{cmd: exec.CommandContext(t.Context(), "/bin/bash", "-c", "echo ready; read go; "+script)}
	stdin, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	r.in, r.cmd.Stdin, r.cmd.WaitDelay = in, stdin, time.Second
	r.cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if r.release, err = start(r.cmd); err != nil {
		t.Fatal(err)
	}
	r.out = bufio.NewReader(out)
	if line, err := r.out.ReadString('\n'); line != "ready\n" {
		t.Errorf("%q, %v", line, err)
	}
	return r
}

// end lets the script run, and returns what it printed.
func (r *running) end(t *testing.T) string {
	t.Helper()
	defer r.release()
	r.in.WriteString("go\n")
	r.in.Close()
	out, err := io.ReadAll(r.out)
	if err := errors.Join(err, r.cmd.Wait()); err != nil {
		t.Error(err)
	}
	return string(out)
}

// status returns a line of the process's status, as others see it.
func (r *running) status(t *testing.T, key string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	return "no such line"
}

// wantPowerless checks what the kernel says of the process.
func (r *running) wantPowerless(t *testing.T) {
	t.Helper()
	id := fmt.Sprint(UID())
	ids, none := strings.Join([]string{id, id, id, id}, " "), "0000000000000000"
	for key, want := range map[string]string{"Uid": ids, "Gid": ids, "Groups": "", "NoNewPrivs": "1",
		"CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none} {
		if got := r.status(t, key); got != want {
			t.Errorf("%s: %s, want %q", key, got, want)
		}
	}
	if id == "0" {
		t.Error("it runs as root")
	}
}

func (r *running) shares(t *testing.T, namespace string) bool {
	t.Helper()
	own, err := os.Readlink("/proc/self/ns/" + namespace)
	theirs, err2 := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", r.cmd.Process.Pid, namespace))
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return own == theirs
}

func reader(input *os.File) func(*exec.Cmd) (func(), error) {
	return func(cmd *exec.Cmd) (func(), error) { return StartReader(cmd, input) }
}

// TestReader: a program that parses a stranger's file has that file, and nothing else of root or of the host.
func TestReader(t *testing.T) {
	needRoot(t)
	input, hidden, port := secret(t, 0o444), secret(t, 0o444), listen(t)
	script := fmt.Sprintf(`
cat %s
ls /
(exec 3<>/dev/tcp/127.0.0.1/%d) && echo network
unshare --user --map-root-user true && echo user namespace
for f in %s /etc/shadow /etc/passwd /proc/self/status /dev/null; do [ -e $f ] && echo sees $f; done
for f in /new /tmp/new /etc/new /usr/new %[1]s; do (: >>$f) && echo writes $f; done
echo "process $$"`, InputPath(input), port, hidden.Name())
	r := begin(t, script, reader(input))
	r.wantPowerless(t)
	for _, namespace := range []string{"net", "pid", "ipc", "uts", "mnt"} {
		if r.shares(t, namespace) {
			t.Errorf("its %s namespace is ours", namespace)
		}
	}
	want := []string{"the content"}
	for _, name := range []string{"bin", "etc", "input", "lib", "lib32", "lib64", "sbin", "usr"} {
		if _, err := os.Lstat("/" + name); err == nil || name == "input" {
			want = append(want, name)
		}
	}
	want = append(want, "process 1")
	if got := strings.Split(strings.TrimSpace(r.end(t)), "\n"); !slices.Equal(got, want) {
		t.Errorf("it printed %q, want %q", got, want)
	}
}

// TestClosedInput: the program opens its input as its own user.
func TestClosedInput(t *testing.T) {
	needRoot(t)
	input := secret(t, 0o400)
	r := begin(t, "cat "+InputPath(input)+"; echo $?", reader(input))
	if got := r.end(t); got != "1\n" {
		t.Errorf("%q", got)
	}
}

// TestConverter: a program that writes what it made of a stranger's file has one directory, of a bounded size.
func TestConverter(t *testing.T) {
	needRoot(t)
	path := filepath.Join(t.TempDir(), "out") // below a directory that is closed to others
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "input"), []byte("the content\n"), 0o444); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	script := fmt.Sprintf(`
cat input
(exec 3<>/dev/tcp/127.0.0.1/%d) && echo network
for f in /etc/passwd /proc/self/status /dev/null; do [ -e $f ] && echo sees $f; done
for f in output /new /tmp/new /usr/new; do (: >>$f) && echo writes $f; done
head -c 2000 /bin/bash >big
cp /bin/true run; chmod +x run; ./run && echo executes; true`, listen(t))
	r := begin(t, script, func(cmd *exec.Cmd) (func(), error) { return StartConverter(cmd, dir, 1000) })
	r.wantPowerless(t)
	if got, want := r.end(t), "the content\nwrites output\n"; got != want {
		t.Errorf("it printed %q, want %q", got, want)
	}
	if info, err := os.Stat(filepath.Join(path, "big")); err != nil || info.Size() != 1000 {
		t.Errorf("%v, %v: wanted 1000 bytes", info, err)
	}
}

// TestFetcher: a program that downloads has its directory, the network, and what any account may read.
func TestFetcher(t *testing.T) {
	needRoot(t)
	path := filepath.Join(t.TempDir(), "out") // below a directory that is closed to others
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	open, closed := "/etc/passwd", "/etc/shadow"
	script := fmt.Sprintf(`
(exec 3<>/dev/tcp/127.0.0.1/%d) && echo network
for f in %s %s; do (: <$f) && echo reads $f; done
for f in fetched /etc/new /usr/new; do (: >>$f) && echo writes $f; done
(: >/dev/tty) && echo terminal; true`, listen(t), open, closed)
	r := begin(t, script, func(cmd *exec.Cmd) (func(), error) { return StartFetcher(cmd, dir) })
	r.wantPowerless(t)
	if got, want := r.end(t), "network\nreads "+open+"\nwrites fetched\n"; got != want {
		t.Errorf("it printed %q, want %q", got, want)
	}
	info, err := os.Lstat(filepath.Join(path, "fetched"))
	if err != nil {
		t.Fatal(err)
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != UID() {
		t.Errorf("what it wrote belongs to %d", owner)
	}
}

// TestFetcherEnds: what a program that downloads leaves running ends with it, in a session of its own, too.
func TestFetcherEnds(t *testing.T) {
	needRoot(t)
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	r := begin(t, "setsid sleep "+seconds+" >/dev/null 2>&1 & true",
		func(cmd *exec.Cmd) (func(), error) { return StartFetcher(cmd, dir) })
	r.end(t)
	eventually(t, "processes are left", func() bool { return !anyRuns() })
}

// seconds are for how long processes of these tests sleep: by that they are told from those of other programs that run
// as UID at the same time.
var seconds = fmt.Sprint(100000 + os.Getpid())

// anyRuns reports whether a process of these tests runs as UID.
func anyRuns() bool {
	all, _ := filepath.Glob("/proc/[0-9]*")
	return slices.ContainsFunc(all, func(p string) bool {
		info, err := os.Stat(p)
		text, _ := os.ReadFile(p + "/cmdline")
		return err == nil && int(info.Sys().(*syscall.Stat_t).Uid) == UID() && strings.Contains(string(text), seconds)
	})
}

// TestInheritedFiles: what our own parent left open to us is nothing to the programs.
func TestInheritedFiles(t *testing.T) {
	left, err := syscall.Dup(int(secret(t, 0o400).Fd())) // without close-on-exec, as what is inherited
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(left)
	r := begin(t, fmt.Sprintf("(: <&%d) 2>&1 && echo open; true", left), reader(nil))
	if got := r.end(t); strings.HasSuffix(got, "open\n") {
		t.Errorf("it has a file that is open to us: %q", got)
	}
}

// TestNothingStays: what a program lost, we did not; and when its time is over, its children end with it.
func TestNothingStays(t *testing.T) {
	needRoot(t)
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", "sleep "+seconds+" & sleep "+seconds+"; true")
	cmd.WaitDelay = time.Second
	release, err := StartReader(cmd, nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := cmd.Wait(); err == nil {
		t.Error("it ended as if it were done")
	}
	release()
	eventually(t, "processes are left", func() bool { return !anyRuns() })
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a thread of ours is in another namespace", func() bool {
		threads, _ := filepath.Glob("/proc/self/task/*/ns/mnt")
		return len(threads) > 0 && !slices.ContainsFunc(threads, func(p string) bool {
			theirs, err := os.Readlink(p)
			return err == nil && theirs != own
		})
	})
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waittest.Limit); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// TestMainThread: the main thread is never the one that loses its rights.
func TestMainThread(t *testing.T) {
	for range 64 {
		done := make(chan bool)
		go onThreadOfItsOwn(func() { done <- syscall.Gettid() == os.Getpid() })
		if <-done {
			t.Fatal("the main thread would be used")
		}
	}
}

func TestMissing(t *testing.T) {
	if _, err := StartReader(exec.Command("/nonexistent/program"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestAsUser runs itself as a user that is not root: programs stay that user's.
func TestAsUser(t *testing.T) {
	if os.Geteuid() == 0 {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestAsUser$", "-test.v")
		cmd.Dir = "/"
		cmd.Env = []string{"TMPDIR=/tmp"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestAsUser") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	input := secret(t, 0o400)
	r := begin(t, "cat "+InputPath(input)+"; id -u", reader(input))
	if got := r.status(t, "NoNewPrivs"); got != "1" {
		t.Error("NoNewPrivs:", got)
	}
	if got, want := r.end(t), fmt.Sprintf("the content\n%d\n", os.Geteuid()); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
