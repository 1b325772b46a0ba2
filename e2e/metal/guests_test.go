package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grange-project/grange/e2e/metal/metallab"
)

// TestRoot has the root of a Debian be larger than its image, and a job fill it.
func TestRoot(t *testing.T) {
	h := withDebian(t, metallab.Options{}, "")
	got := run(t, h, `echo input | grange exec --memory 1G --image debian --disk 4G -- sh -c '
test $(df -BM --output=size / | tail -n 1 | tr -dc 0-9) -gt 3500 && echo grown
n=0; while fallocate -l 100M /fill$n 2>/dev/shm/why; do n=$((n + 1)); done; cat /dev/shm/why
rm /fill*; cat' 2>/root/progress || cat /root/progress`)
	if !strings.HasPrefix(got, "grown\n") || !strings.Contains(got, "No space left on device") ||
		!strings.HasSuffix(got, "\ninput") {
		t.Errorf("a root of 4G that is filled: %q", got)
	}
	run(t, h, "grange image remove debian")
	nothingLeft(t, h)
}

// TestGuest32 runs a job in a Debian of 32 bits.
func TestGuest32(t *testing.T) {
	// Such a guest sets its APIC's priority by ways on which KVM sets the state of its processor, and the emulator of
	// these hosts gives up the whole host at the first trap behind that ("invalid tss type").
	h := withDebian(t, metallab.Options{}, "architecture = \"i386\"\nkernel_parameters = [\"nolapic\"]\n")
	inDebian(t, h, "15m", "uname -m; dpkg --print-architecture", "i686\ni386")
}

// TestGuestUEFI runs a job in a Debian that boots by UEFI.
func TestGuestUEFI(t *testing.T) {
	h := withDebian(t, metallab.Options{Suite: "trixie"}, "firmware = \"efi\"\n")
	inDebian(t, h, "25m", "test -d /sys/firmware/efi && echo uefi", "uefi")
}

// inDebian wants a job in the image debian, which takes as long to boot, to print what is said and its input; and
// nothing of it to be left.
func inDebian(t *testing.T, h *metallab.Host, timeout, command, prints string) {
	t.Helper()
	got := run(t, h, fmt.Sprintf(`sed -i '1i boot_timeout = "%s"' /etc/grange/agent.toml
systemctl restart grange-agent
echo input | grange exec --memory 512M --image debian -- sh -c '%s; cat' 2>/root/progress || cat /root/progress`,
		timeout, command))
	if got != prints+"\ninput" {
		t.Errorf("%s: %q", command, got)
	}
	run(t, h, "grange image remove debian")
	nothingLeft(t, h)
}

// withDebian is a host with the image debian, of debianRecipe and more lines.
func withDebian(t *testing.T, o metallab.Options, more string) *metallab.Host {
	t.Helper()
	long(t)
	t.Parallel()
	room(t, 1)
	disk := debianDisk(t, more)
	o.Debs = agentDebs(t)
	h := begin(t, o)
	if err := h.Copy(t.Context(), "/root", disk); err != nil {
		t.Fatal(err)
	}
	run(t, h, "cd /root; grange image import --name debian debian.qcow2; rm debian.qcow2")
	return h
}

// debianRecipe is of the main archive alone: a mirror may be amid an update of another one.
const debianRecipe = `kind = "debian"
size = "2G"
suite = "bookworm"
sources = ["deb http://deb.debian.org/debian bookworm main"]
`

// debianDisk builds a Debian by more lines of a recipe, and returns its file, which is compressed: a host takes minutes
// to read it otherwise.
func debianDisk(t *testing.T, more string) string {
	t.Helper()
	dir := t.TempDir()
	file, disk := filepath.Join(dir, "recipe.toml"), filepath.Join(dir, "debian.qcow2")
	if err := os.WriteFile(file, []byte(debianRecipe+more), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, words := range [][]string{
		{"go", "run", "./cmd/grange", "image", "build", file, "-o", disk + ".plain"},
		{"qemu-img", "convert", "-c", "-O", "qcow2", disk + ".plain", disk},
	} {
		cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
		cmd.Dir = metallab.Source()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(words, " "), err, out)
		}
	}
	return disk
}
