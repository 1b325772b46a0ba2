package libvirt_test

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
)

// TestScriptHidesKVM has private-libvirtd judge /dev/kvm of every kind, in a mount namespace with a device and a QEMU
// of the test's own.
func TestScriptHidesKVM(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skip private-libvirtd: a mount namespace needs root")
	}
	emulator, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Skip("skip private-libvirtd: qemu-system-x86_64 is not installed")
	}
	if _, err := os.Stat("/dev/kvm"); err != nil {
		t.Skip("skip private-libvirtd: there is no /dev/kvm to mount another one over")
	}
	script, err := filepath.Abs("../../../scripts/private-libvirtd")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := user.Lookup("libvirt-qemu"); err != nil {
		t.Skip("skip private-libvirtd: QEMU has no user of its own here")
	}
	const answers = "case \"$*\" in *qmp*) exit 0 ;; esac; echo boot >>/run/boots; "
	const comesUp = answers + `case "$*" in *debug-exit*) exit 33 ;; esac`
	for _, c := range []struct{ name, mode, group, qemu, want string }{
		{"open to all", "0666", "root", comesUp, "yes"},
		{"open to QEMU's group", "0660", "kvm", comesUp, "yes"},
		{"root's alone", "0600", "root", comesUp, "no: QEMU's user"},
		{"QEMU aborts", "0666", "root", "exit 134", "no: QEMU does not start"},
		{"guest hangs", "0666", "root", answers + "exec sleep 60", "no: a guest under KVM does not come up"},
		{"guest fails", "0666", "root", answers + "exit 1", "no: a guest under KVM does not come up"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			qemu := filepath.Join(dir, "qemu")
			if err := os.WriteFile(qemu, []byte("#!/bin/sh\n"+c.qemu+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			// The verdict is kept below /run: that is the test's own, too, and the limit is shorter.
			setup := fmt.Sprintf(`set -e
				mount -t tmpfs none /run && mknod -m %s /run/kvm c 10 232 && chgrp %s /run/kvm
				sed 's/^boot_limit=30/boot_limit=1/' %s >/run/script
				mount --bind /run/kvm /dev/kvm && mount --bind %s %s
				touch /run/boots
				sh /run/script kvm || true
				sh /run/script kvm || true # knows by now whether guests boot
				wc -l </run/boots`, c.mode, c.group, script, qemu, emulator)
			out, err := exec.Command("unshare", "--mount", "sh", "-c", setup).CombinedOutput()
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			if err != nil || len(lines) != 3 || !strings.HasPrefix(lines[0], c.want) || lines[1] != lines[0] ||
				lines[2] > "1" {
				t.Errorf("%v: %q, want %q", err, lines, c.want)
			}
		})
	}
}
