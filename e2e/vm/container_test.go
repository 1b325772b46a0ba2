package vm

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/grange-project/grange/api"
)

// busybox is the one program of the images that these tests make: there is no shell by another name.
func busybox(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// pushed puts an image of one static program into a registry.
func pushed(t *testing.T, host string) (ref string) {
	t.Helper()
	program := busybox(t)
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	w.WriteHeader(&tar.Header{Name: "busybox", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(program))})
	w.Write(program)
	w.WriteHeader(&tar.Header{Name: "etc/resolv.conf", Typeflag: tar.TypeSymlink, Linkname: "/run/nowhere/resolv.conf"})
	w.WriteHeader(&tar.Header{Name: "tmp", Typeflag: tar.TypeSymlink, Linkname: "/proc"})
	w.Close()
	image, err := mutate.AppendLayers(empty.Image, static.NewLayer(layer.Bytes(), types.DockerUncompressedLayer))
	if err == nil {
		image, err = mutate.ConfigFile(image, &v1.ConfigFile{OS: "linux", Architecture: "amd64", Config: v1.Config{
			Entrypoint: []string{"/busybox", "echo"}, Cmd: []string{"from", "the", "image"}, WorkingDir: "/work",
			Env: []string{"PATH=/opt/bin:/usr/bin", "OURS=image", "THEIRS=image"}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	to, err := name.ParseReference(host+"/some/image:1", name.Insecure)
	if err == nil {
		err = remote.Write(to, image)
	}
	if err != nil {
		t.Fatal(err)
	}
	return "oci+http://" + host + "/some/image:1"
}

// phases are those of a start, as JSON events tell them.
func phases(t *testing.T, stderr string) map[string]float64 {
	t.Helper()
	found := map[string]float64{}
	for line := range strings.Lines(stderr) {
		var e struct{ Phase *api.Phase }
		if json.Unmarshal([]byte(line), &e) == nil && e.Phase != nil {
			found[e.Phase.Name] = e.Phase.Milliseconds
		}
	}
	return found
}

// TestContainerImage runs an image of a registry: once fetched, and once with the registry away.
func TestContainerImage(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	ref := pushed(t, strings.TrimPrefix(server.URL, "http://"))

	stranger := host.Exec(ctx(t), "--image", ref)
	stranger.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
	stranger.Dir = "/"
	if r := run(t, stranger, ""); r.code != 199 && r.code != 2 || !strings.Contains(r.errors, "not yours to do") {
		t.Errorf("an ordinary user had an image fetched: status %d, %s", r.code, r.errors)
	}
	r := grange(t, "--json", "--image", ref)
	r.want(t, 0, "from the image\n")
	t.Logf("the first start: %v", phases(t, r.errors))
	server.Close()

	dir := t.TempDir()
	openUp(t, dir)
	os.Chown(dir, 12345, 12346)
	script := `set -e; b=/busybox
$b id -u; $b pwd; echo $PATH; echo $OURS $THEIRS
$b grep -c "^root / overlay rw" /proc/mounts
$b grep " /tmp " /proc/mounts | $b cut -d" " -f3
$b stat -c "%a %F" /tmp /etc/resolv.conf /var/tmp
$b grep -c 12345: /etc/passwd
$b test $($b hostname) = $($b cat /etc/hostname)
(echo x > /new) 2>/dev/null || echo refused
echo written > /tmp/x; $b cat /tmp/x; echo bound > /data/made; $b ls /`
	cmd := host.Exec(ctx(t), "--json", "--image", ref, "--scratch", "64M", "--network", "user", "--bind", dir+":/data",
		"--env", "THEIRS=caller", "--", "/busybox", "sh", "-c", script)
	cmd.Dir = "/"
	cmd.Env = append(cmd.Env, "PATH=/usr/bin:/host/bin")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12346}}
	r = run(t, cmd, "")
	r.want(t, 0, "12345\n/work\n/opt/bin:/usr/bin:/host/bin\nimage caller\n1\next4\n1777 directory\n644 regular file\n"+
		"1777 directory\n1\nrefused\nwritten\nbusybox\ndata\ndev\netc\nproc\nrun\nsys\ntmp\nvar\nwork\n")
	t.Logf("a cached start: %v", phases(t, r.errors))
	t.Logf("a cached start, without disk, network and bind: %v", phases(t, grange(t, "--json", "--image", ref).errors))
	t.Logf("a start of micro: %v", phases(t, grange(t, "--json", "--", "true").errors))
	if text, err := os.ReadFile(filepath.Join(dir, "made")); err != nil || string(text) != "bound\n" {
		t.Errorf("%q, %v", text, err)
	}
	if r := grange(t, "--image", ref, "--pull", "--", "/busybox", "true"); r.code != 199 ||
		!strings.Contains(r.errors, "cannot read "+ref) {
		t.Errorf("--pull without a registry: status %d, %s", r.code, r.errors)
	}
}

// TestContainerDirectory runs what is unpacked in a directory.
func TestContainerDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "busybox"), busybox(t), 0o755); err != nil {
		t.Fatal(err)
	}
	grange(t, "--image", "dir:"+dir, "--", "/busybox", "sh", "-c", "/busybox pwd; echo x > /busybox.new; /busybox ls /").
		want(t, 0, "/tmp\nbusybox\nbusybox.new\ndev\netc\nproc\nrun\nsys\ntmp\nvar\n")
	if _, err := os.Stat(filepath.Join(dir, "busybox.new")); err == nil {
		t.Error("the VM wrote to the image")
	}
	if r := grange(t, "--image", "dir:"+dir); !strings.Contains(r.errors, "names none") {
		t.Errorf("status %d: %s", r.code, r.errors)
	}
}

// TestContainerSIF runs an image as Apptainer has it.
func TestContainerSIF(t *testing.T) {
	if _, err := exec.LookPath("mksquashfs"); err != nil {
		t.Skip("no mksquashfs")
	}
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "image.sif")
	os.MkdirAll(filepath.Join(dir, ".singularity.d"), 0o755)
	os.WriteFile(filepath.Join(dir, ".singularity.d", "runscript"), []byte("#!/busybox sh\necho run\n"), 0o755)
	if err := os.WriteFile(filepath.Join(dir, "busybox"), busybox(t), 0o755); err != nil {
		t.Fatal(err)
	}
	squashfs := filepath.Join(t.TempDir(), "squashfs")
	pack := exec.CommandContext(ctx(t), "mksquashfs", dir, squashfs, "-quiet", "-no-progress")
	if out, err := pack.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	root, err := os.ReadFile(squashfs)
	if err != nil {
		t.Fatal(err)
	}
	le, b := binary.LittleEndian, make([]byte, 8192)
	copy(b, "#!/usr/bin/env run-singularity\n")
	copy(b[32:], "SIF_MAGIC\x0001\x0002\x00")
	le.PutUint64(b[88:], 1)
	le.PutUint64(b[96:], 4096)
	le.PutUint64(b[104:], 585)
	d := b[4096:]
	le.PutUint32(d, 0x4004)
	d[4] = 1
	le.PutUint64(d[17:], uint64(len(b)))
	le.PutUint64(d[25:], uint64(len(root)))
	le.PutUint32(d[585-384:], 1)
	le.PutUint32(d[585-380:], 2)
	copy(d[585-376:], "02")
	if err := os.WriteFile(file, append(b, root...), 0o644); err != nil {
		t.Fatal(err)
	}
	grange(t, "--image", file).want(t, 0, "run\n")
}
