package subid

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// inside runs a shell command as a user and returns the directory of the process that it becomes, below /proc. The
// command ends with `exec cat`.
func inside(t *testing.T, as *syscall.SysProcAttr, command string) *os.File {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.Dir, cmd.SysProcAttr = "/", as
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Process.Kill(); cmd.Wait() })
	fmt.Fprintln(in, "here")
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "here\n" {
		t.Fatalf("no user namespace for the account: %q, %v: %s", line, err, said.String())
	}
	process, err := os.Open(fmt.Sprintf("/proc/%d", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { process.Close() })
	return process
}

// TestNamespaceOwner makes user namespaces as an account does, also within each other, and as root does for containers.
func TestNamespaceOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("other accounts' processes need root")
	}
	user := func(uid uint32) *syscall.SysProcAttr {
		return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	const account = 61010
	const unshare = "unshare --user --map-root-user "
	all := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 70000}}
	container := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: all, GidMappings: all,
		GidMappingsEnableSetgroups: true}
	for name, c := range map[string]struct {
		as      *syscall.SysProcAttr
		command string
		want    uint32
	}{
		"none":             {user(account), "exec cat", 0},
		"one":              {user(account), "exec " + unshare + "cat", account},
		"without a map":    {user(account), "exec unshare --user cat", account},
		"within another":   {user(account), "exec " + unshare + unshare + "cat", account},
		"of root":          {user(0), "exec " + unshare + "cat", 0},
		"in one of root's": {container, "exec setpriv --reuid 61011 --regid 61011 --clear-groups cat", 0},
		"within one of root": {container, "exec setpriv --reuid 61011 --regid 61011 --clear-groups " + unshare + "cat",
			61011},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := NamespaceOwner(inside(t, c.as, c.command))
			if err != nil || got != c.want {
				t.Errorf("%d, %v; want %d", got, err, c.want)
			}
		})
	}
}

// TestNamespaceOfTheDead: of a process that has gone nothing is said, whoever has its number by then.
func TestNamespaceOfTheDead(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	process, err := os.Open(fmt.Sprintf("/proc/%d", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer process.Close()
	if owner, err := NamespaceOwner(process); owner != 0 || err != nil {
		t.Errorf("%d, %v", owner, err)
	}
	in.Close()
	cmd.Wait()
	if owner, err := NamespaceOwner(process); err == nil {
		t.Errorf("owner %d of a process that has gone", owner)
	}
}

// TestNamespaceOutside: this process asks about one whose user namespace is above its own, as an agent in a container
// does about a process of the host.
func TestNamespaceOutside(t *testing.T) {
	if pid := os.Getenv("GRANGE_TEST_OUTSIDE"); pid != "" {
		process, err := os.Open("/proc/" + pid)
		if err != nil {
			t.Fatal(err)
		}
		owner, err := NamespaceOwner(process)
		fmt.Println("owner", owner, errors.Is(err, ErrOutside) || errors.Is(err, os.ErrPermission))
		return
	}
	if os.Getuid() != 0 {
		t.Skip("a namespace of this kind needs root")
	}
	cmd := exec.Command("unshare", "--user", "--map-root-user", os.Args[0], "-test.run=^TestNamespaceOutside$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("GRANGE_TEST_OUTSIDE=%d", os.Getpid()))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if text := string(out); !strings.Contains(text, "owner 0 true") {
		t.Errorf("%s", text)
	}
}
