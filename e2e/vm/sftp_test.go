package vm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/grange-project/grange/api"
)

// sshfsImage is a micro image with sshfs, which the first test that needs it builds.
func sshfsImage(t *testing.T) string {
	t.Helper()
	const name = "micro-sshfs"
	if _, err := os.Stat("/usr/lib/openssh/sftp-server"); err != nil {
		t.Skip("sftp-server is not installed")
	}
	if run(t, host.Grange(ctx(t), "image", "show", name), "").code != 0 {
		run(t, host.Grange(t.Context(), "image", "build", "micro", name, "--package", "sshfs"), "").wantCode(t, 0)
	}
	return name
}

// sftpServers are that user's processes that serve by sftp.
func sftpServers() (pids []int) { return serversOf("sftp-server") }

// TestSFTP: directories come by sftp, as the user; files are the user's on the host; a read-only one stays as it is;
// the job's end leaves nothing that serves, and has written all.
func TestSFTP(t *testing.T) {
	image, dir, shown := sshfsImage(t), ownDir(t), ownDir(t)
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "secret"), []byte("secret"), 0o600),
		os.WriteFile(filepath.Join(shown, "read"), []byte("read\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	const script = `grep -c fuse.sshfs /proc/mounts; cat /shown/read; touch /shown/new 2> /dev/null || echo read-only
cat secret 2> /dev/null || echo refused; echo text > made; mkdir d; ln -s /etc/passwd out; readlink out
chmod 4755 made 2> /dev/null || echo no suid
stat -c %u made; head -c 3000000 /dev/zero > large; wc -c < large`
	r := run(t, asOwner(host.Exec(ctx(t), "--image", image, "--bind", dir+":/data:gateway=sftp", "--bind",
		shown+":/shown:ro:gateway=sftp", "--workdir", "/data", "--", "sh", "-c", script)), "")
	r.want(t, 0, "4\nread\nread-only\nrefused\n/etc/passwd\nno suid\n12345\n3000000\n")
	for _, name := range []string{"made", "d", "out"} {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != fileOwner {
			t.Errorf("%s on the host: %v, %v", name, info, err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "large")); err != nil || info.Size() != 3000000 {
		t.Errorf("large on the host: %v, %v", info, err)
	}
	if left := sftpServers(); len(left) > 0 {
		t.Errorf("sftp-server is left: %v", left)
	}
}

// TestSFTPEnds: an agent that was killed finds the VM's sftp-server again; the end of that ends the VM, with the
// reason.
func TestSFTPEnds(t *testing.T) {
	j := launch(t, asOwner(host.Exec(ctx(t), "--image", sshfsImage(t), "--bind", ownDir(t)+":/data:gateway=sftp", "--",
		"sh", "-c", "ls /data; echo up; sleep 600")))
	j.expect(t, "up")
	vms, err := host.Client.VMs(ctx(t))
	if err != nil || len(vms) != 1 || !slices.ContainsFunc(vms[0].Binds, func(b api.BoundBy) bool {
		return b.Gateway == "sftp" && b.Target == "/data" && b.Why != ""
	}) {
		t.Fatalf("%+v, %v", vms, err)
	}
	host.KillAgent()
	if err := host.StartAgent(ctx(t)); err != nil {
		t.Fatal(err)
	}
	pids := sftpServers()
	if len(pids) != 1 {
		t.Fatalf("sftp-server has the processes %v", pids)
	}
	syscall.Kill(pids[0], syscall.SIGKILL)
	r := j.finish(t)
	if r.code == 0 || !strings.Contains(r.errors, "sftp-server, which serves a bound directory (bind0), has ended") {
		t.Errorf("status %d: %s", r.code, r.errors)
	}
	await(t, host, "no VM", noVMs)
}

// TestSFTPRefused: an image without sshfs, and a directory of root, are refused with the reason.
func TestSFTPRefused(t *testing.T) {
	sshfsImage(t)
	r := run(t, asOwner(host.Exec(ctx(t), "--bind", ownDir(t)+":/data:gateway=sftp", "--", "true")), "")
	if r.code == 0 || !strings.Contains(r.errors, "the image has no sshfs") {
		t.Errorf("status %d: %s", r.code, r.errors)
	}
	r = grange(t, "--bind", fmt.Sprint(t.TempDir(), ":/data:gateway=sftp"), "--", "true")
	if r.code == 0 || !strings.Contains(r.errors, "sftp: binds of root are not served by it") {
		t.Errorf("status %d: %s", r.code, r.errors)
	}
}
