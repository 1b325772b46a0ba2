package virtiofs

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/gateway/confine"
	"github.com/grange-project/grange/internal/waittest"
)

const runWord = "run-virtiofs"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == runWord {
		if err := confine.Run(os.Args[2:], map[farm.Gateway]confine.Gateway{farm.Virtiofs: Gateway}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// needVirtiofsd returns this host's.
func needVirtiofsd(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root starts programs as others: root")
	}
	path, err := Find(t.Context())
	if err != nil {
		t.Skip(err)
	}
	return path
}

// holder is a process of the caller that has a directory open as descriptor 0.
func holder(t *testing.T, dir string, uid uint32, groups ...uint32) int {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("sleep", "600")
	cmd.Stdin = f
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
		Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: groups}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd.Process.Pid
}

// server is a virtiofsd of a test.
func server(t *testing.T, dir string, uid uint32, readOnly bool, groups ...uint32) (pid int, socket, words string) {
	t.Helper()
	pid, socket, words, err := start(t, dir, uid, readOnly, groups...)
	if err != nil {
		t.Fatal(err)
	}
	qemu, err := net.Dial("unix", socket) // it makes its sandbox when QEMU calls
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { qemu.Close() })
	return pid, socket, words
}

func start(t *testing.T, dir string, uid uint32, readOnly bool, groups ...uint32) (int, string, string, error) {
	t.Helper()
	s := confine.Server{Gateway: farm.Virtiofs, Program: needVirtiofsd(t), Command: []string{"/proc/self/exe", runWord},
		UID: uid, GID: uid, Groups: groups, Files: 1 << 16}
	d, err := confine.Clone(t.Context(), holder(t, dir, uid, groups...), 0, uid, readOnly)
	if err != nil {
		return 0, "", "", err
	}
	defer d.Close()
	s.Directory = d.File
	own := t.TempDir()
	socket, words := filepath.Join(own, "socket"), filepath.Join(own, "words")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	if s.Listener, err = l.File(); err != nil {
		t.Fatal(err)
	}
	defer s.Listener.Close()
	if s.Words, err = os.Create(words); err != nil {
		t.Fatal(err)
	}
	defer s.Words.Close()
	pid, err := confine.Start(t.Context(), s)
	if err == nil {
		t.Cleanup(func() { unix.Kill(pid, unix.SIGKILL) })
	}
	return pid, socket, words, err
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

// awaitFamily waits until virtiofsd has made its sandbox: Run, virtiofsd's parent, and the one that serves.
func awaitFamily(t *testing.T, pid int, words string) []int {
	t.Helper()
	for deadline := time.Now().Add(waittest.Limit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		all := family(pid)
		if len(all) == 3 {
			if root, err := os.ReadDir(fmt.Sprintf("/proc/%d/root/proc", all[2])); err != nil || len(root) == 0 {
				if status(all[2], "CapEff:") == strings.Repeat("0", 16) {
					return all
				}
			}
		}
		if text, _ := os.ReadFile(words); len(text) > 0 {
			t.Fatalf("virtiofsd ended: %s", text)
		}
	}
	t.Fatalf("virtiofsd does not come up: %v", family(pid))
	return nil
}

func status(pid int, key string) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, key); ok {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	return ""
}

// TestRights: virtiofsd is the caller, has no capability, sees the directory alone, and cannot change that.
func TestRights(t *testing.T) {
	const uid = 640001
	dir := filepath.Join(t.TempDir(), "data")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, uid, uid),
		os.WriteFile(filepath.Join(dir, "mark"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	pid, _, words := server(t, dir, uid, false, 640002, 640005)
	for _, pid := range awaitFamily(t, pid, words) {
		for key, want := range map[string]string{"Uid:": "640001 640001 640001 640001",
			"Gid:": "640001 640001 640001 640001", "Groups:": "640001 640002 640005", "CapEff:": "0000000000000000",
			"CapPrm:": "0000000000000000", "CapAmb:": "0000000000000000", "NoNewPrivs:": "1", "Seccomp:": "2"} {
			if got := status(pid, key); got != want {
				t.Errorf("process %d: %s %s, not %s", pid, key, got, want)
			}
		}
	}
	served := awaitFamily(t, pid, words)[2]
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/root", served))
	if err != nil || len(entries) != 1 || entries[0].Name() != "mark" {
		t.Errorf("its root holds %v, %v", entries, err)
	}
	maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/gid_map", served))
	if got := strings.Join(strings.Fields(string(maps)), " "); got != "640001 640001 2 640005 640005 1" {
		t.Errorf("its groups are mapped as %q", got)
	}
	for _, ns := range []string{"user", "mnt", "pid", "net", "ipc", "uts"} {
		ours, _ := os.Readlink("/proc/self/ns/" + ns)
		if theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", served, ns)); err != nil || theirs == ours {
			t.Errorf("it is in our namespace %s: %v", ns, err)
		}
	}
}

// TestEndsWhole: who kills the process that Start returns kills all.
func TestEndsWhole(t *testing.T) {
	dir := t.TempDir()
	os.Chmod(dir, 0o755)
	pid, _, words := server(t, dir, 640001, false)
	all := awaitFamily(t, pid, words)
	unix.Kill(all[2], unix.SIGSTOP)
	unix.Kill(pid, unix.SIGKILL)
	for _, pid := range all {
		if !waittest.Until(func() bool { return unix.Kill(pid, 0) == unix.ESRCH }) {
			t.Errorf("process %d lives on", pid)
		}
	}
}

// TestWords: what virtiofsd ends of is kept.
func TestWords(t *testing.T) {
	dir := t.TempDir()
	os.Chmod(dir, 0o755)
	pid, _, words := server(t, dir, 640001, false)
	unix.Kill(awaitFamily(t, pid, words)[1], unix.SIGKILL)
	waittest.For(t, "its last words tell of the signal", func() bool {
		text, _ := os.ReadFile(words)
		return strings.Contains(string(text), "the signal: killed")
	})
}

// TestRefused: what virtiofs does not serve.
func TestRefused(t *testing.T) {
	needVirtiofsd(t)
	plain, mounted := t.TempDir(), t.TempDir()
	below := filepath.Join(mounted, "below")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", below, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip("no mounts here: ", err)
	}
	t.Cleanup(func() { unix.Unmount(below, unix.MNT_DETACH) })
	many := make([]uint32, 1000)
	for i := range many {
		many[i] = 700000 + 2*uint32(i)
	}
	for name, c := range map[string]struct {
		dir    string
		uid    uint32
		groups []uint32
		want   string
	}{
		"root":         {plain, 0, nil, "root"},
		"root's group": {plain, 640001, []uint32{0}, "root's group"},
		"many groups":  {plain, 640001, many, "1001 groups"},
		"mounts below": {mounted, 640001, nil, "mounted below it, at below"},
	} {
		_, _, _, err := start(t, c.dir, c.uid, false, c.groups...)
		if !farm.IsCode(err, farm.CodeNoGateway) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNotOpen: a descriptor that the caller does not have, or that is no directory.
func TestNotOpen(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root looks at others' descriptors: root")
	}
	pid := holder(t, t.TempDir(), 640001)
	for _, fd := range []int{1, 77, -1} {
		if d, err := confine.Clone(t.Context(), pid, fd, 640001, false); err == nil {
			t.Errorf("descriptor %d: %v", fd, d)
		}
	}
}

// TestCloneOfAnother: what a process has open that became somebody else's is not the caller's.
func TestCloneOfAnother(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root looks at others' descriptors: root")
	}
	pid := holder(t, t.TempDir(), 61097)
	if _, err := confine.Clone(t.Context(), pid, 0, 61096, true); !farm.IsCode(err, farm.CodeNoGateway) {
		t.Error(err)
	}
}
