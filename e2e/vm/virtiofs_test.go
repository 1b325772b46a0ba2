package vm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
)

// fileOwner is a user of the tests whose directories virtiofs serves; root has none served.
const fileOwner, fileGroup = 12345, 12346

// asOwner has a command be that user's.
func asOwner(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: fileOwner, Gid: fileOwner,
		Groups: []uint32{fileGroup}}}
	return cmd
}

// needVirtiofsd skips where the host has none, or root cannot make user namespaces.
func needVirtiofsd(t *testing.T) {
	t.Helper()
	for _, path := range []string{"/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd", "/usr/lib/virtiofsd"} {
		if _, err := os.Stat(path); err == nil {
			return
		}
	}
	t.Skip("virtiofsd is not installed")
}

// ownDir is a directory of that user.
func ownDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	openUp(t, dir)
	if err := os.Chown(dir, fileOwner, fileOwner); err != nil {
		t.Fatal(err)
	}
	return dir
}

// virtiofsds are the processes of that user that serve directories.
func virtiofsds() []int { return serversOf("virtiofsd") }

// serversOf are the processes of that user with a name.
func serversOf(name string) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, path := range all {
		text, _ := os.ReadFile(path)
		if strings.HasPrefix(string(text), "Name:\t"+name+"\n") &&
			strings.Contains(string(text), fmt.Sprintf("Uid:\t%d", fileOwner)) {
			var pid int
			fmt.Sscanf(path, "/proc/%d/", &pid)
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// TestVirtiofs: the directory comes by virtiofs, as the user; files are the user's on the host; nothing that serves it
// is left.
func TestVirtiofs(t *testing.T) {
	needVirtiofsd(t)
	dir, shown := ownDir(t), ownDir(t)
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "secret"), []byte("secret"), 0o600),
		os.WriteFile(filepath.Join(shown, "read"), []byte("read\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	const script = `grep -c virtiofs /proc/mounts; cat /shown/read; touch /shown/new 2> /dev/null || echo read-only
cat secret 2> /dev/null || echo refused; echo text > made; mkdir d; ln -s /etc/passwd out
chmod 4755 made 2> /dev/null || echo no suid
stat -c %u made`
	r := run(t, asOwner(host.Exec(ctx(t), "--bind", dir+":/data:gateway=virtiofs", "--bind",
		shown+":/shown:ro:gateway=auto", "--workdir", "/data", "--", "sh", "-c", script)), "")
	r.want(t, 0, "2\nread\nread-only\nrefused\nno suid\n12345\n")
	for _, name := range []string{"made", "d", "out"} {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != fileOwner {
			t.Errorf("%s on the host: %v, %v", name, info, err)
		}
	}
	if left := virtiofsds(); len(left) > 0 {
		t.Errorf("virtiofsd is left: %v", left)
	}
}

// rootsHook is what root in a VM tries with a directory of the host. It prints what it should not be able to.
const rootsHook = `#!/bin/sh
cd /data || exit 1
no() { "$@" 2> /dev/null && echo "root can: $*"; }
echo text > roots && mkdir dir && ln -s /etc/passwd link || echo "root cannot write"
no chmod 4755 roots; no chmod 2755 roots; no chown 0 roots; no chown 1 roots; no chgrp 0 roots
no mknod device c 1 3; no mknod device b 8 0
no cat secret; no touch secret; no rm shut/file; no ls shut; no cat group0
cat group > /dev/null || echo "root cannot read by the group"
no cat ../../etc/shadow.of.the.host
no sh -c 'cat outside/secret'
no mv shown/file taken; no sh -c 'echo x > shown/new'
cp "$(command -v cat)" program && no chmod u+s program
exit 0
`

// TestVirtiofsRoot: root in the VM has the caller's rights on the host, and leaves nothing there that has others'.
func TestVirtiofsRoot(t *testing.T) {
	needVirtiofsd(t)
	dir, hook := ownDir(t), filepath.Join(t.TempDir(), "hook")
	give := func(name, text string, mode os.FileMode, gid int) {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600),
			os.Chown(path, 0, gid), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	give("secret", "secret", 0o600, 0)
	give("group", "group", 0o640, fileGroup)
	give("group0", "group", 0o640, 0)
	give("shut/file", "", 0o600, 0)
	give("shown/file", "", 0o644, 0)
	give("../outside.secret/secret", "", 0o644, 0)
	if err := errors.Join(os.Chmod(filepath.Join(dir, "shut"), 0o700),
		os.Symlink("../outside.secret", filepath.Join(dir, "outside")),
		os.WriteFile(hook, []byte(rootsHook), 0o755)); err != nil {
		t.Fatal(err)
	}
	defer reload(t, testConfig, "configuration reloaded")
	reload(t, fmt.Sprintf("hook = %q\n", hook), "configuration reloaded")
	r := run(t, asOwner(host.Exec(ctx(t), "--bind", dir+":/data:gateway=virtiofs", "--", "true")), "")
	if r.code != 0 || strings.Contains(r.errors, "root can") {
		t.Errorf("status %d: %s", r.code, r.errors)
	}
	for _, name := range []string{"roots", "dir", "link", "program"} {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			continue
		}
		st := info.Sys().(*syscall.Stat_t)
		if st.Uid != fileOwner || st.Gid != fileOwner || st.Mode&(syscall.S_ISUID|syscall.S_ISGID) != 0 {
			t.Errorf("%s is of %d:%d on the host, mode %o", name, st.Uid, st.Gid, st.Mode)
		}
	}
}

// TestVirtiofsEnds: the agent is killed and finds the VM's virtiofsd again; that is stopped, and the agent answers;
// that is killed, and the job ends with the reason.
func TestVirtiofsEnds(t *testing.T) {
	needVirtiofsd(t)
	dir := ownDir(t)
	j := launch(t, asOwner(host.Exec(ctx(t), "--bind", dir+":/data:gateway=virtiofs", "--", "sh", "-c",
		"echo up; sleep 600")))
	j.expect(t, "up")
	vms, err := host.Client.VMs(ctx(t))
	if err != nil || len(vms) != 1 || !slices.ContainsFunc(vms[0].Binds, func(b api.BoundBy) bool {
		return b.Gateway == "virtiofs" && b.Target == "/data" && b.Why != ""
	}) {
		t.Fatalf("%+v, %v", vms, err)
	}
	host.KillAgent()
	if err := host.StartAgent(ctx(t)); err != nil {
		t.Fatal(err)
	}
	pids := virtiofsds()
	if len(pids) != 2 {
		t.Fatalf("virtiofsd has the processes %v", pids)
	}
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGSTOP)
	}
	await(t, host, "a VM whose virtiofsd is stopped", hasState("running"))
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	r := j.finish(t)
	if r.code == 0 || !strings.Contains(r.errors, "virtiofsd, which serves a bound directory (bind0), has ended") {
		t.Errorf("status %d: %s", r.code, r.errors)
	}
	await(t, host, "no VM", noVMs)
	for range 100 {
		if len(virtiofsds()) == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if left := virtiofsds(); len(left) > 0 {
		t.Errorf("virtiofsd is left: %v", left)
	}
}

// TestVirtiofsPages: huge pages are shared with virtiofsd, too.
func TestVirtiofsPages(t *testing.T) {
	needVirtiofsd(t)
	fillPool(t, 160) // 320M
	j := launch(t, asOwner(host.Exec(ctx(t), "--page-size", "2M", "--memory", "256M", "--bind",
		ownDir(t)+":/data:gateway=virtiofs", "--workdir", "/data", "--", "sh", "-c",
		"echo text > made && cat made && echo up && sleep 1000")))
	j.expect(t, "up")
	for _, pid := range host.QEMUs() {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		all := 0
		for _, kib := range regexp.MustCompile(`_Hugetlb: +(\d+) kB`).FindAllStringSubmatch(string(text), -1) {
			n, _ := strconv.Atoi(kib[1]) // those that virtiofsd has read or written, and others
			all += n
		}
		if err != nil || all != 256<<10 {
			t.Errorf("the VM's memory is not in huge pages: %v\n%s", err, text)
		}
	}
	j.Process.Kill()
	<-j.done
}

// TestVirtiofsRefused: by name it is refused with the reason; chosen by itself FUSE takes its place.
func TestVirtiofsRefused(t *testing.T) {
	needVirtiofsd(t)
	dir := t.TempDir() // of root, whom virtiofs does not serve
	r := grange(t, "--bind", dir+":/data:gateway=virtiofs", "--", "true")
	if r.code == 0 || !strings.Contains(r.errors, "binds of root are not served by it") {
		t.Errorf("status %d: %s", r.code, r.errors)
	}
	grange(t, "--bind", dir+":/data:gateway=auto", "--", "grep", "-c", " /data fuse ", "/proc/mounts").want(t, 0, "1\n")
}
