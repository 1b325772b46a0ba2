package agent

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/grange-project/grange/internal/agent/admission"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/names"
)

// TestCallerInUserNamespace: a caller that has another user ID, and none of its groups, in a user namespace of its own
// making counts for the account.
func TestCallerInUserNamespace(t *testing.T) {
	if at := os.Getenv("GRANGE_TEST_NAMESPACE"); at != "" {
		callAs(t, at, 1)
		return
	}
	if os.Getuid() != 0 {
		t.Skip("another account's processes need root")
	}
	const account, first = 61020, 300000
	a := testAgent(t, testShapes)
	a.names = names.New(directory)
	dir, err := os.MkdirTemp("", "cn") // that the account can reach, as t.TempDir is not
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program, err := os.ReadFile("/proc/self/exe")
	if err := errors.Join(err, os.Chmod(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "test"), program, 0o755)); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, "s")
	l, err := listenUnix(at, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	door := admission.NewDoor(l, &a.admission, admission.Limits{Connections: a.mostConnections,
		Free: func(uid uint32) bool { return uid == 0 }, Party: accounts(a).Party}, slog.New(slog.DiscardHandler))

	cmd := exec.Command("unshare", "--user", "--keep-caps", "--", filepath.Join(dir, "test"),
		"-test.run=^"+t.Name()+"$")
	cmd.Env, cmd.Dir, cmd.Stderr = append(os.Environ(), "GRANGE_TEST_NAMESPACE="+at), "/", os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: account, Gid: account}}
	in, err := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if _, err := fmt.Fscanln(out, new(string)); err != nil { // it is in its namespace
		t.Fatal(err)
	}
	maps := fmt.Appendf(nil, "0 %d 1\n1 %d 10\n", account, first) // as newuidmap writes them
	for _, name := range []string{"uid_map", "gid_map"} {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", cmd.Process.Pid, name), maps, 0); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Fprintln(in, "mapped")
	go func() {
		io.Copy(os.Stderr, out)
		l.Close() // Accept waits for nobody then
	}()
	conn, err := door.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c, err := callerOf(conn.(*admission.Connection))
	if err != nil || c.UID != first || c.GID != first || len(c.Groups) > 0 || c.User() != account {
		t.Errorf("%+v, %v", c, err)
	}
	if open := a.admission.Open(account); open != 1 {
		t.Errorf("the account has %d connections", open)
	}
	conn.(*admission.Connection).Hidden = errors.New("the kernel does not tell")
	if c, err := callerOf(conn.(*admission.Connection)); !farm.IsCode(err, CodeHiddenCaller) {
		t.Errorf("whose namespace it is cannot be known: %+v, %v", c, err)
	}
}

// callAs connects to a socket as another user of this process's user namespace, once that has a map.
func callAs(t *testing.T, at string, id int) {
	fmt.Println("here")
	if _, err := fmt.Fscanln(os.Stdin, new(string)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(id, id, id),
		syscall.Setresuid(id, id, id)); err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("unix", at); err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, os.Stdin)
}
