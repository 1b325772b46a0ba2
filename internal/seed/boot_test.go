//go:build slow

package seed

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestSeedBoots boots a Debian image with a seed, in emulation, and waits for the program that stands in for grange-guest. The
// image is GRANGE_TEST_DEBIAN, or made by scripts/build-debian-image, which takes two minutes.
func TestSeedBoots(t *testing.T) {
	dir := t.TempDir()
	image := os.Getenv("GRANGE_TEST_DEBIAN")
	if image == "" {
		image = filepath.Join(dir, "debian.qcow2")
		if out, err := exec.Command("../../scripts/build-debian-image", image).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	guest := filepath.Join(dir, "guest")
	script := "#!/bin/sh\necho \"GUEST-STARTED $(cat /proc/uptime) $(hostname) $(cat /etc/grange/facts) $(ls /dev/virtio-ports)\" >/dev/ttyS0\npoweroff\n"
	if err := os.WriteFile(guest, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	iso := filepath.Join(dir, "seed.iso")
	s := Seed{ID: "vm-1", Hostname: "grange-1", Guest: guest, Files: []File{{"/etc/grange/facts", 0o644, []byte("FACTS")}}}
	if err := s.WriteFile(iso, -1, -1); err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "root.qcow2")
	if out, err := exec.Command("/usr/bin/qemu-img", "create", "-q", "-f", "qcow2", "-b", image, "-F", "qcow2", overlay).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	start := time.Now()
	// The CD is a virtio disk: Debian's cloud kernel has no driver for q35's SATA.
	out, err := exec.CommandContext(ctx, "/usr/bin/qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-m", "1024", "-smp", "2",
		"-nodefaults", "-nographic", "-serial", "stdio", "-no-reboot", "-drive", "file="+overlay+",format=qcow2,if=virtio",
		"-drive", "file="+iso+",format=raw,if=virtio,readonly=on", "-device", "virtio-serial", "-chardev", "null,id=a",
		"-device", "virtserialport,chardev=a,name=org.grange.control").CombinedOutput()
	if err != nil {
		t.Errorf("qemu: %v", err)
	}
	i := bytes.Index(out, []byte("GUEST-STARTED"))
	if i < 0 {
		t.Fatalf("grange-guest was not started in %v:\n%s", time.Since(start), out)
	}
	line, _, _ := bytes.Cut(out[i:], []byte("\n"))
	t.Logf("%s; power-off after %v", line, time.Since(start).Round(time.Second))
	for _, want := range []string{"grange-1", "FACTS", "org.grange.control"} {
		if !bytes.Contains(line, []byte(want)) {
			t.Errorf("%q lacks %q", line, want)
		}
	}
}
