//go:build slow

package seed

import (
	"bytes"
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/imagerecipe"
)

// TestSeedBoots boots a Debian image with seeds, in emulation, and waits for the program that stands in for
// grange-guest. The image is GRANGE_TEST_DEBIAN, or made of packages, which takes two minutes.
func TestSeedBoots(t *testing.T) {
	image := os.Getenv("GRANGE_TEST_DEBIAN")
	if image == "" {
		image = filepath.Join(t.TempDir(), "debian.qcow2")
		recipe, err := imagerecipe.Parse([]byte(`kind = "debian"`))
		if err != nil {
			t.Fatal(err)
		}
		o := imagerecipe.Options{Out: image, Cache: t.TempDir(), Progress: func(text string) { t.Log(text) }}
		if _, err := imagerecipe.Build(t.Context(), recipe, o); err != nil {
			t.Fatal(err)
		}
	}
	const tell = "echo \"GUEST-STARTED $(cat /proc/uptime) $(hostname) $(cat /etc/grange/facts) $(ls " +
		"/dev/virtio-ports)\" >/dev/ttyS0\npoweroff\n"
	t.Run("job", func(t *testing.T) {
		s := Seed{ID: "vm-1", Hostname: "grange-1", Files: []File{{"/etc/grange/facts", 0o644, []byte("FACTS")}}}
		bootSeed(t, image, s, tell, "grange-1", "FACTS", "org.grange.control")
	})
	// The user's script is the last that cloud-init does: it waits for it, and tells what there is.
	const wait = "(while ! [ -e /run/user-script ]; do sleep 1; done; echo \"GUEST-STARTED $(hostname -f) $(cat " +
		"/home/debian/.ssh/authorized_keys) $(ip -4 -o addr show dev eth0) " +
		"$(ip route | tr '\\n' ' ') $(cat /run/user-script)\" >/dev/ttyS0; poweroff) &\n"
	t.Run("cloud", func(t *testing.T) {
		s := Seed{ID: "vm-1-0", Hostname: "web.example.org", Keys: []string{"ssh-ed25519 AAAA ann"},
			UserData: userParts, Network: &Network{MAC: bootMAC, Address: netip.MustParsePrefix("10.1.0.7/16"),
				Gateway: netip.MustParseAddr("10.1.0.1"), Domain: "example.org"}}
		bootSeed(t, image, s, wait, "web.example.org", "ssh-ed25519 AAAA ann", "10.1.0.7/16", "default via 10.1.0.1",
			"USER-BOOTCMD", "USER-SCRIPT")
	})
}

// userParts has a bootcmd and files of its own, as ours would have, and a script.
var userParts = []byte(strings.ReplaceAll(`Content-Type: multipart/mixed; boundary="part"
MIME-Version: 1.0

--part
Content-Type: text/cloud-config

#cloud-config
bootcmd: [[sh, -c, "echo USER-BOOTCMD >/run/user-bootcmd"]]
write_files: [{path: /etc/user-file, content: hello}]
--part
Content-Type: text/x-shellscript

#!/bin/sh
echo USER-SCRIPT $(cat /run/user-bootcmd /etc/user-file) >/run/user-script.new
mv /run/user-script.new /run/user-script
--part--
`, "\n", "\r\n"))

const bootMAC = "52:54:0a:01:00:07"

// bootSeed boots an image whose grange-guest is a script, until it powers off, and compares what it printed.
func bootSeed(t *testing.T, image string, s Seed, script string, wants ...string) {
	dir := t.TempDir()
	s.Guest = filepath.Join(dir, "guest")
	if err := os.WriteFile(s.Guest, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	iso := filepath.Join(dir, "seed.iso")
	if err := s.WriteFile(iso); err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "root.qcow2")
	if out, err := exec.Command("/usr/bin/qemu-img", "create", "-q", "-f", "qcow2", "-b", image, "-F", "qcow2",
		overlay).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	start := time.Now()
	// The CD is a virtio disk: Debian's cloud kernel has no driver for q35's SATA.
	out, err := exec.CommandContext(ctx, "/usr/bin/qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi",
		"-cpu", "max", "-m", "1024", "-smp", "2", "-nodefaults", "-nographic", "-serial", "stdio", "-no-reboot",
		"-drive", "file="+overlay+",format=qcow2,if=virtio", "-drive", "file="+iso+",format=raw,if=virtio,readonly=on",
		"-device", "virtio-serial", "-chardev", "null,id=a", "-device",
		"virtserialport,chardev=a,name=org.grange.control", "-netdev", "hubport,id=n,hubid=0", "-device",
		"virtio-net-pci,netdev=n,mac="+bootMAC).CombinedOutput()
	if err != nil {
		t.Errorf("qemu: %v", err)
	}
	i := bytes.Index(out, []byte("GUEST-STARTED"))
	if i < 0 {
		t.Fatalf("grange-guest was not started in %v:\n%s", time.Since(start), out)
	}
	line, _, _ := bytes.Cut(out[i:], []byte("\n"))
	t.Logf("%s; power-off after %v", line, time.Since(start).Round(time.Second))
	for _, want := range wants {
		if !bytes.Contains(line, []byte(want)) {
			t.Errorf("%q lacks %q", line, want)
		}
	}
}
