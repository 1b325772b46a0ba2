package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// builtDisk is the disk of a recipe.
func builtDisk(t *testing.T, recipe string) string {
	t.Helper()
	dir := t.TempDir()
	file, disk := filepath.Join(dir, "recipe.toml"), filepath.Join(dir, "disk.qcow2")
	if err := os.WriteFile(file, []byte(recipe), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, host.Grange(t.Context(), "image", "build", file, "-o", disk), "").wantCode(t, 0)
	return disk
}

// TestDebianImage runs jobs in a full Debian, built by mmdebstrap and imported as any cloud image is: its own boot
// loader, systemd and cloud-init, and grange-guest from the seed. It takes minutes under emulation: GRANGE_SLOW=1 asks
// for it.
func TestDebianImage(t *testing.T) {
	if os.Getenv("GRANGE_SLOW") == "" {
		t.Skip("takes minutes; GRANGE_SLOW=1 runs it")
	}
	disk := os.Getenv("GRANGE_TEST_DEBIAN") // one that was built before
	if disk == "" {
		disk = builtDisk(t, `kind = "debian"`)
	}
	if r := run(t, host.Grange(t.Context(), "image", "import", "--name", "debian", disk), ""); r.code != 0 {
		t.Fatal(r.errors)
	}
	before, err := os.ReadFile(disk)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	openUp(t, dir)
	os.Chown(dir, 12345, 12346)
	script :=
		`. /etc/os-release; echo $ID; cat /proc/1/comm; id -u; id -g; pwd; cat > here; stat -f -c %T /tmp; grep -c HOST_CPU_MODEL /etc/grange/host; echo err >&2; exit 9`
	cmd := host.Exec(t.Context(), "-v", "--image", "debian", "--cpus", fmt.Sprint(min(cpus(t), 2)), "--memory", "1G",
		"--scratch", "64M", "--bind", dir+":/data", "--workdir", "/data", "--", "sh", "-c", script)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12346}}
	r := run(t, cmd, "input")
	r.want(t, 9, "debian\nsystemd\n12345\n12346\n/data\next2/ext3\n1\n")
	if !strings.Contains(r.errors, "err\n") {
		t.Errorf("stderr: %s", r.errors)
	}
	t.Log(r.errors)
	if text, _ := os.ReadFile(filepath.Join(dir, "here")); string(text) != "input" {
		t.Errorf("the bound directory got %q", text)
	}
	if after, _ := os.ReadFile(disk); string(after) != string(before) {
		t.Error("the image was written to")
	}
	run(t, host.Grange(ctx(t), "image", "rm", "debian"), "").want(t, 0, "debian removed\n")
}
