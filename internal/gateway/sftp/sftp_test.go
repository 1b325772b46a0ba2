package sftp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/gateway/confine"
	"github.com/grange-project/grange/internal/waittest"
)

const (
	runWord = "run-sftp"
	uid     = 640001
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == runWord {
		if err := confine.Run(os.Args[2:], map[farm.Gateway]confine.Gateway{farm.SFTP: Gateway}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	for fd := 3; fd < 64; fd++ { // what our own caller left open, as make does, is no file of the agent
		unix.CloseOnExec(fd)
	}
	os.Exit(m.Run())
}

// client speaks SFTP as a guest may, and is no better than one.
type client struct {
	t    *testing.T
	port net.Conn
	pid  int
	end  string // file that has how it ended
}

// serve has a directory served, and connects as QEMU does.
func serve(t *testing.T, dir string, readOnly bool) *client {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root starts programs as others: root")
	}
	program, err := Find()
	if err != nil {
		t.Skip(err)
	}
	own := t.TempDir()
	c := &client{t: t, end: filepath.Join(own, "words")}
	d, err := confine.Clone(t.Context(), holder(t, dir), 0, uid, readOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(own, "socket"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	listener, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	words, err := os.Create(c.end)
	if err != nil {
		t.Fatal(err)
	}
	defer words.Close()
	c.pid, err = confine.Start(t.Context(), confine.Server{Gateway: farm.SFTP, Program: program,
		Command: []string{"/proc/self/exe", runWord}, Directory: d.File, ReadOnly: readOnly, Listener: listener,
		Words: words, UID: uid, GID: uid, Groups: []uint32{640002}, Files: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Kill(c.pid, unix.SIGKILL) })
	if c.port, err = net.Dial("unix", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.port.Close() })
	c.port.SetDeadline(time.Now().Add(time.Minute))
	if kind, _ := c.call(1, binary.BigEndian.AppendUint32(nil, 3)); kind != 2 {
		t.Fatalf("a message of type %d", kind)
	}
	return c
}

// holder is a process of the caller that has a directory open as descriptor 0.
func holder(t *testing.T, dir string) int {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("sleep", "600")
	cmd.Stdin = f
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
		Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd.Process.Pid
}

// Requests, answers and flags of SFTP.
const (
	reqOpen, reqRead, reqSetstat, reqRemove, reqMkdir, reqRealpath, reqStat = 3, 5, 9, 13, 14, 16, 17
	reqSymlink, reqExtended                                                 = 20, 200
	ansStatus, ansHandle, ansData, ansName                                  = 101, 102, 103, 104
	forReading, forWriting, creating                                        = 1, 2, 8
	withMode                                                                = 4 // of attributes
)

// call sends a message and returns the answer's type and body.
func (c *client) call(kind byte, body []byte) (byte, []byte) {
	c.t.Helper()
	m := binary.BigEndian.AppendUint32(nil, uint32(len(body)+1))
	if _, err := c.port.Write(append(append(m, kind), body...)); err != nil {
		c.t.Fatal(err)
	}
	head := make([]byte, 5)
	if _, err := io.ReadFull(c.port, head); err != nil {
		text, _ := os.ReadFile(c.end)
		c.t.Fatalf("%v: %s", err, text)
	}
	answer := make([]byte, binary.BigEndian.Uint32(head)-1)
	if _, err := io.ReadFull(c.port, answer); err != nil {
		c.t.Fatal(err)
	}
	return head[4], answer
}

// ask sends a request made of strings and numbers, and returns the answer behind its number.
func (c *client) ask(kind byte, parts ...any) (byte, []byte) {
	c.t.Helper()
	body := binary.BigEndian.AppendUint32(nil, 7)
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			body = append(binary.BigEndian.AppendUint32(body, uint32(len(p))), p...)
		case int:
			body = binary.BigEndian.AppendUint32(body, uint32(p))
		}
	}
	answer, rest := c.call(kind, body)
	if len(rest) < 4 || binary.BigEndian.Uint32(rest) != 7 {
		c.t.Fatalf("an answer to another request: %x", rest)
	}
	return answer, rest[4:]
}

// done reports whether a request was granted.
func (c *client) done(kind byte, parts ...any) bool {
	c.t.Helper()
	answer, rest := c.ask(kind, parts...)
	return answer != ansStatus || len(rest) >= 4 && binary.BigEndian.Uint32(rest) == 0
}

// read returns what a file starts with.
func (c *client) read(path string) (string, bool) {
	c.t.Helper()
	kind, handle := c.ask(reqOpen, path, forReading, 0)
	if kind != ansHandle {
		return "", false
	}
	if kind, data := c.ask(reqRead, string(handle[4:]), 0, 0, 100); kind == ansData {
		return string(data[4:]), true
	}
	return "", true
}

func ownDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, uid, uid)); err != nil {
		t.Skip("only root gives files away: root")
	}
	return dir
}

// TestHostile: what a guest asks for that is no honest kernel.
func TestHostile(t *testing.T) {
	dir := ownDir(t)
	outside := filepath.Join(filepath.Dir(dir), "outside")
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "in"), []byte("in"), 0o644),
		os.WriteFile(filepath.Join(dir, "shut"), []byte("shut"), 0o600), os.Chmod(filepath.Dir(dir), 0o755),
		os.WriteFile(outside, []byte("out"), 0o666), os.Chmod(outside, 0o666),
		os.Symlink("../outside", filepath.Join(dir, "up")), os.Symlink(outside, filepath.Join(dir, "far")),
		os.Symlink("in", filepath.Join(dir, "near")), os.Symlink("/", filepath.Join(dir, "root")),
		unix.Mknod(filepath.Join(dir, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3)))); err != nil {
		t.Fatal(err)
	}
	c := serve(t, dir, false)
	if text, ok := c.read("/in"); !ok || text != "in" {
		t.Errorf("%q, %v", text, ok)
	}
	for _, path := range []string{"/etc/passwd", "../outside", "/../outside", outside, "up", "far", "near", "root/in",
		"shut", "null", "/proc/self/root/etc/passwd", "/tmp/directory/in", "/dev/null", "/lib/x86_64-linux-gnu/libc.so.6"} {
		if text, ok := c.read(path); ok {
			t.Errorf("the guest opens %s: %q", path, text)
		}
	}
	for _, mode := range []int{0o104755, 0o102755, 0o4755} {
		if c.done(reqOpen, "made", forWriting|creating, withMode, mode) {
			t.Errorf("a file of mode %o is made", mode)
		}
	}
	if !c.done(reqOpen, "made", forWriting|creating, withMode, 0o100640) ||
		c.done(reqSetstat, "made", withMode, 0o4755) || c.done(reqMkdir, "d", withMode, 0o2755) {
		t.Error("a file cannot be made, or set-ID bits can")
	}
	for _, word := range []string{"home-directory", "users-groups-by-id@openssh.com", "expand-path@openssh.com"} {
		if c.done(reqExtended, word, "job", "job") {
			t.Errorf("the guest is answered to %s", word)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "made"), &st); err != nil || st.Uid != uid || st.Gid != uid ||
		st.Mode != unix.S_IFREG|0o640 {
		t.Errorf("%+v, %v", st, err)
	}
	if kind, name := c.ask(reqRealpath, "."); kind != ansName || !bytes.Contains(name, []byte("\x00\x00\x00\x01/")) {
		t.Errorf("it is at %q", name)
	}
	if text, _ := os.ReadFile(outside); string(text) != "out" {
		t.Errorf("outside holds %q", text)
	}
}

func TestReadOnly(t *testing.T) {
	dir := ownDir(t)
	file := filepath.Join(dir, "file")
	if err := errors.Join(os.WriteFile(file, []byte("text"), 0o666), os.Chown(file, uid, uid)); err != nil {
		t.Fatal(err)
	}
	c := serve(t, dir, true)
	if c.done(reqOpen, "file", forWriting, 0) || c.done(reqOpen, "new", forWriting|creating, 0) || c.done(reqMkdir, "d", 0) ||
		c.done(reqRemove, "file") || c.done(reqSetstat, "file", withMode, 0o600) || c.done(reqSymlink, "a", "b") {
		t.Error("the guest changes something")
	}
	if text, ok := c.read("file"); !ok || text != "text" || !c.done(reqStat, "file") {
		t.Errorf("%q, %v", text, ok)
	}
}

// family are a process and what it has started.
func family(pid int) []int {
	all := []int{pid}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	for _, word := range strings.Fields(string(text)) {
		var child int
		fmt.Sscan(word, &child)
		all = append(all, family(child)...)
	}
	return all
}

// TestRights: all of it is the caller, without a capability; sftp-server has the directory alone.
func TestRights(t *testing.T) {
	dir := ownDir(t)
	if err := os.WriteFile(filepath.Join(dir, "mark"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c := serve(t, dir, false)
	all := family(c.pid)
	if len(all) != 2 {
		t.Fatalf("its processes are %v", all)
	}
	for _, pid := range all {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		status := "\n" + strings.Join(strings.Fields(strings.ReplaceAll(string(text), "\n", " ; ")), " ")
		for _, want := range []string{"Uid: 640001 640001 640001 640001 ;", "Gid: 640001 640001 640001 640001 ;",
			"Groups: 640001 640002 ;", "CapEff: 0000000000000000 ;", "CapPrm: 0000000000000000 ;",
			"CapAmb: 0000000000000000 ;", "NoNewPrivs: 1 ;", "Seccomp: 2 ;"} {
			if !strings.Contains(status, want) {
				t.Errorf("process %d has not %s%s", pid, want, status)
			}
		}
		for _, ns := range []string{"user", "mnt", "pid", "net", "ipc", "uts"} {
			ours, _ := os.Readlink("/proc/self/ns/" + ns)
			if theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns)); err != nil || theirs == ours {
				t.Errorf("process %d is in our namespace %s: %v", pid, ns, err)
			}
		}
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", all[1]))
	if err != nil {
		t.Error(err)
	}
	for _, fd := range open {
		to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", all[1], fd.Name()))
		if strings.HasPrefix(to, "/") && to != os.DevNull {
			t.Errorf("it has %s open", to)
		}
	}
	for _, what := range []string{"root", "cwd"} {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/%s", all[1], what))
		if err != nil || len(entries) != 1 || entries[0].Name() != "mark" {
			t.Errorf("its %s holds %v, %v", what, entries, err)
		}
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", all[1]))
	if err != nil || strings.Count(string(mounts), "\n") != 1 {
		t.Errorf("it has the mounts %s, %v", mounts, err)
	}
}

// TestEnds: it ends with QEMU, whole when it is killed, and says how it ended.
func TestEnds(t *testing.T) {
	for name, end := range map[string]func(c *client){
		"it ended with status 0":             func(c *client) { c.port.Close() },
		"it ended with status 11, and said":  func(c *client) { c.port.Write([]byte{255, 255, 255, 255, 0}) },
		"it was ended by the signal: killed": func(c *client) { unix.Kill(family(c.pid)[1], unix.SIGKILL) },
		"":                                   func(c *client) { unix.Kill(c.pid, unix.SIGKILL) },
	} {
		c := serve(t, ownDir(t), false)
		all := family(c.pid)
		end(c)
		for _, pid := range all {
			if !waittest.Until(func() bool { return unix.Kill(pid, 0) == unix.ESRCH }) {
				t.Errorf("%s: process %d lives on", name, pid)
			}
		}
		if text, _ := os.ReadFile(c.end); !strings.HasPrefix(string(text), name) {
			t.Errorf("its last words are %q, not %q", text, name)
		}
	}
}

func TestFind(t *testing.T) {
	program := &fstest.MapFile{Mode: 0o755}
	got, err := find(fstest.MapFS{"usr/libexec/openssh/sftp-server": program, "usr/lib/openssh": {Mode: os.ModeDir}})
	if err != nil || got != "/usr/libexec/openssh/sftp-server" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := find(fstest.MapFS{}); !farm.IsCode(err, farm.CodeNoGateway) {
		t.Errorf("%q, %v", got, err)
	}
}
