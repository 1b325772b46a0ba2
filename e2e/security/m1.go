package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// rootQEMU starts the private libvirtd on a host that has no user for QEMU: it does not come up with QEMU as root.
func rootQEMU(ctx context.Context, s *site) error {
	script, accounts, dir := filepath.Join(s.source, "scripts/private-libvirtd"), s.path("passwd"), s.path("lv")
	if err := os.WriteFile(accounts, []byte("root:x:0:0:root:/root:/bin/sh\n"), 0o644); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "unshare", "--mount", "sh", "-c",
		`mount --bind "$1" /etc/passwd && exec "$0" up --no-kvm "$2"`, script, accounts, dir).CombinedOutput()
	defer exec.Command(script, "down", dir).Run()
	// Whether it then comes up depends on the user that this machine's libvirt was built for.
	conf, _ := os.ReadFile(filepath.Join(dir, "etc/qemu.conf"))
	switch {
	case strings.Contains(string(conf), `user = "root"`):
		return breach("libvirtd is told to run QEMU as root")
	case err == nil || !strings.Contains(string(out), "no user for QEMU"):
		return fmt.Errorf("private-libvirtd: %v: %s", err, out)
	}
	return nil
}
