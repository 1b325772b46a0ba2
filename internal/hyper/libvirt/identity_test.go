package libvirt

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/waittest"
)

// lockFile names a role of the test's own program: it locks the pid file in it, as the process does that libvirt makes,
// and becomes the program that its arguments name.
const lockFile = "GRANGE_TEST_LOCK"

func TestMain(m *testing.M) {
	path := os.Getenv(lockFile)
	if path == "" {
		os.Exit(m.Run())
	}
	err := lockAndBecome(path, os.Args[1:])
	os.Stderr.WriteString(err.Error())
	os.Exit(1)
}

func lockAndBecome(path string, argv []string) error {
	fd, err := unix.Open(path, unix.O_WRONLY, 0) // stays open over exec
	if err != nil {
		return err
	}
	if err := unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Len: 1}); err != nil {
		return err
	}
	if uid, _ := strconv.Atoi(os.Getenv("GRANGE_TEST_UID")); uid != 0 {
		if err := unix.Setresuid(uid, uid, uid); err != nil {
			return err
		}
	}
	return unix.Exec(argv[0], argv, nil)
}

// Users of nobody's on this machine.
const qemuUser, ordinary = 61990, 61991

// identityLab is a host where a test's own processes stand for QEMU: /bin/sleep is the emulator.
type identityLab struct {
	*testing.T
	l        *Libvirt
	emulator string
}

func newIdentityLab(t *testing.T) identityLab {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skip identity: processes of other users take root")
	}
	emulator, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "id")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, sub := range []string{"libvirt/qemu", "run/vm/a"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := New(Config{Socket: filepath.Join(dir, "libvirt/libvirt-sock"), RunDir: filepath.Join(dir, "run"),
		Accelerator: TCG})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return identityLab{t, l, emulator}
}

func (i identityLab) entry() entry {
	return entry{ID: "11111111-1111-4111-8111-111111111111", Name: "grange-11111111", UID: qemuUser,
		Emulator: i.emulator, Sockets: []string{filepath.Join(i.l.cfg.RunDir, "vm/a/console")}}
}

func (i identityLab) pidFile() string { return i.l.pids.file(i.entry().Name) }

func (i identityLab) writePidFile() {
	i.Helper()
	if err := os.WriteFile(i.pidFile(), []byte("1"), 0o644); err != nil {
		i.Fatal(err)
	}
}

// run starts a program until the test ends.
func (i identityLab) run(cmd *exec.Cmd) *exec.Cmd {
	i.Helper()
	if err := cmd.Start(); err != nil {
		i.Fatal(err)
	}
	i.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

// machine runs what libvirt would: the lock as root, then the program as a user.
func (i identityLab) machine(uid int, program string, args ...string) *exec.Cmd {
	i.Helper()
	own, err := os.Executable()
	if err != nil {
		i.Fatal(err)
	}
	i.writePidFile()
	if len(args) == 0 {
		args = []string{"600"}
	}
	cmd := exec.Command(own, append([]string{program}, args...)...)
	cmd.Env = []string{lockFile + "=" + i.pidFile(), "GRANGE_TEST_UID=" + strconv.Itoa(uid)}
	i.run(cmd)
	want, err := filepath.EvalSymlinks(program)
	if err != nil {
		i.Fatal(err)
	}
	for limit := time.Now().Add(waittest.Limit); ; time.Sleep(5 * time.Millisecond) {
		if got, _ := os.Readlink("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/exe"); got == want {
			return cmd
		}
		if time.Now().After(limit) {
			i.Fatal("the program does not start")
		}
	}
}

// pretender runs the emulator itself as an ordinary account, with a machine's name and UUID.
func (i identityLab) pretender(uid uint32) *exec.Cmd {
	cmd := exec.Command("/bin/sh", "-c", `exec "$0" 600`, i.emulator)
	cmd.Args = append(cmd.Args, "-name", "guest="+i.entry().Name, "-uuid", i.entry().ID)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return i.run(cmd)
}

func (i identityLab) wants(want int) {
	i.Helper()
	p, err := i.l.pids.locate(i.entry())
	if err != nil {
		i.Fatal(err)
	}
	got := 0
	if p != nil {
		got = p.pid
	}
	if got != want {
		i.Errorf("the machine's process is %d, want %d", got, want)
	}
}

// TestLocate finds the process that libvirt started, however many pretend to be it.
func TestLocate(t *testing.T) {
	i := newIdentityLab(t)
	i.pretender(ordinary)
	i.wants(0)
	real := i.machine(qemuUser, i.emulator)
	i.pretender(ordinary)
	i.wants(real.Process.Pid)
	if err := i.l.journal.note(i.entry()); err != nil {
		t.Fatal(err)
	}
	if err := i.l.Stop(t.Context(), i.entry().ID); err != nil {
		t.Fatal(err)
	}
	if state, _ := real.Process.Wait(); state == nil || state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the machine ended with %v, want killed", state)
	}
}

// TestLocateNot has processes with the lock that are not QEMU: they are left alone.
func TestLocateNot(t *testing.T) {
	for name, run := range map[string]func(identityLab){
		"another user":    func(i identityLab) { i.machine(ordinary, i.emulator) },
		"still root":      func(i identityLab) { i.machine(0, i.emulator) },
		"another program": func(i identityLab) { i.machine(qemuUser, "/usr/bin/tail", "-f", "/dev/null") },
		"nobody's lock":   func(i identityLab) { i.writePidFile() },
	} {
		t.Run(name, func(t *testing.T) {
			i := newIdentityLab(t)
			run(i)
			i.wants(0)
		})
	}
}

// TestPidFileOfOthers refuses what others could have written.
func TestPidFileOfOthers(t *testing.T) {
	for name, spoil := range map[string]func(i identityLab) error{
		"owned by another": func(i identityLab) error { return os.Chown(i.pidFile(), ordinary, -1) },
		"writable":         func(i identityLab) error { return os.Chmod(i.pidFile(), 0o666) },
		"a link": func(i identityLab) error {
			return errors.Join(os.Rename(i.pidFile(), i.pidFile()+".real"),
				os.Symlink(i.pidFile()+".real", i.pidFile()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := newIdentityLab(t)
			i.machine(qemuUser, i.emulator)
			if err := spoil(i); err != nil {
				t.Fatal(err)
			}
			if p, err := i.l.pids.locate(i.entry()); err == nil || p != nil {
				t.Errorf("got process %v, error %v", p, err)
			}
		})
	}
}

// TestCheckPidDir: root's directory, or one of the user that libvirt gives QEMU, as libvirt 11.3 of Debian 13 has it.
func TestCheckPidDir(t *testing.T) {
	i := newIdentityLab(t)
	asked := 0
	qemu := func() (int, error) { asked++; return qemuUser, nil }
	if err := i.l.pids.check(qemu); err != nil || asked != 0 {
		t.Errorf("root's: %v, and libvirt was asked %d times", err, asked)
	}
	for _, c := range []struct {
		uid  int
		mode os.FileMode
		good bool
	}{{qemuUser, 0o755, true}, {qemuUser, 0o775, false}, {ordinary, 0o755, false}, {0, 0o777, false}} {
		if err := errors.Join(os.Chown(string(i.l.pids), c.uid, -1), os.Chmod(string(i.l.pids), c.mode)); err != nil {
			t.Fatal(err)
		}
		if err := i.l.pids.check(qemu); (err == nil) != c.good {
			t.Errorf("of user %d with mode %o: %v", c.uid, c.mode, err)
		}
	}
	away := errors.New("libvirt is away")
	if err := i.l.pids.check(func() (int, error) { return 0, away }); !errors.Is(err, away) {
		t.Errorf("libvirt is away: %v", err)
	}
}

// TestSearch finds an orphan whose pid file was deleted; nobody else who has a file of that name.
func TestSearch(t *testing.T) {
	i := newIdentityLab(t)
	real := i.machine(qemuUser, i.emulator)
	if err := os.Remove(i.pidFile()); err != nil {
		t.Fatal(err)
	}
	i.wants(0)
	p, err := search(i.entry())
	if err != nil || p == nil || p.pid != real.Process.Pid {
		t.Errorf("found %v, %v; want process %d", p, err, real.Process.Pid)
	}
	real.Process.Kill()
	real.Wait()

	// As QEMU's own user, with a deleted file of the right name, but one of its own.
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chown(dir, qemuUser, -1)); err != nil {
		t.Fatal(err)
	}
	fake := exec.Command("/bin/sh", "-c", `exec 7>"$1"; rm "$1"; exec "$0" 600`, i.emulator,
		filepath.Join(dir, filepath.Base(i.pidFile())))
	fake.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: qemuUser, Gid: qemuUser}}
	i.run(fake)
	time.Sleep(100 * time.Millisecond)
	if p, err := search(i.entry()); err != nil || p != nil {
		t.Errorf("found %v, %v; want nobody", p, err)
	}
}

// TestNumberGivenAway has a process number that is another process's by now.
func TestNumberGivenAway(t *testing.T) {
	i := newIdentityLab(t)
	first := i.machine(qemuUser, i.emulator)
	p, err := i.l.pids.locate(i.entry())
	if err != nil || p == nil {
		t.Fatal(p, err)
	}
	first.Process.Kill()
	first.Wait()
	other := i.pretender(ordinary)
	p.pid = other.Process.Pid // as if the kernel had given it away again
	if p.alive() {
		t.Error("a process that has ended lives on in another one")
	}
	if err := p.kill(t.Context()); err != nil {
		t.Error(err)
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the other process was hit: %v", err)
	}
}

// TestRemoveSockets removes sockets below the run directory and nothing else, whatever a path or a link says.
func TestRemoveSockets(t *testing.T) {
	i := newIdentityLab(t)
	run, outside := i.l.cfg.RunDir, t.TempDir()
	listen := func(path string) string {
		t.Helper()
		s, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return path
	}
	write := func(path string) string {
		t.Helper()
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ours := listen(filepath.Join(run, "vm/a/console"))
	kept := []string{write(filepath.Join(outside, "victim")), listen(filepath.Join(outside, "s")),
		write(filepath.Join(run, "vm/a/file"))}
	if err := errors.Join(os.Symlink(outside, filepath.Join(run, "vm/out")),
		os.Mkdir(filepath.Join(outside, "empty"), 0o755),
		os.Symlink(ours, filepath.Join(run, "vm/a/link"))); err != nil {
		t.Fatal(err)
	}
	kept = append(kept, filepath.Join(outside, "empty"), filepath.Join(run, "vm/a/link"))
	up := strings.Repeat("../", strings.Count(run, "/")) + strings.TrimPrefix(outside, "/")
	i.l.journal.removeSockets(append(kept, ours, run+"/"+up+"/victim", run+"/"+up+"/s", run+"/"+up+"/empty",
		run+"/vm/out/victim", run+"/vm/out/s", run+"/vm/out/empty", run, run+"/vm/a", ""))
	if _, err := os.Lstat(ours); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("our socket stays: %v", err)
	}
	for _, path := range kept {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
}

// TestSweepPretenders has accounts that pretend to be orphans of ours: nothing of theirs is a machine.
func TestSweepPretenders(t *testing.T) {
	i := newIdentityLab(t)
	fake := i.pretender(ordinary)
	if err := i.l.journal.note(i.entry()); err != nil { // of a machine that never came up
		t.Fatal(err)
	}
	if err := i.l.sweepOrphan(t.Context(), i.entry()); err != nil {
		t.Fatal(err)
	}
	if err := fake.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the pretender was killed: %v", err)
	}
	if _, err := i.l.journal.read(i.entry().ID); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the entry of a machine that is gone stays: %v", err)
	}
	if _, err := i.l.journal.read("../../etc/passwd"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an ID that is none: %v", err)
	}
}
