package metallab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Suites of Debian whose QEMU hosts run on, in a tree of its own. Each of them now and then delivers an interrupt that
// it should not (see Host.Cut), and 11.1 the least: it panics a host once in some fifty VMs. Under 7.2 one host in five
// hung with its first VM, in the kernel's entry code, and under Debian 13's, 10.0, each was reset by it. But 11.1 lets
// guests read the CR3 that KVM has given them without nested page tables, and not their own: they die as they start.
const (
	QEMU11 = "forky"
	QEMU7  = "bookworm"
)

type emulator struct{ tree string } // "": this machine's

// emulator makes the tree where it is missing.
func (l *Lab) emulator(ctx context.Context, suite string) emulator {
	tree, err := script(ctx, "debian-root", suite, "-", "qemu-system-x86", "seabios")
	if err != nil {
		fmt.Fprintf(os.Stderr, "hosts run on this machine's QEMU, and may hang when their first VM starts: %v\n", err)
	}
	return emulator{tree}
}

// command is QEMU with its own libraries. Signals reach QEMU itself.
func (e emulator) command(args ...string) *exec.Cmd {
	const program = "qemu-system-x86_64"
	if e.tree == "" {
		return exec.Command(program, args...)
	}
	lib := e.path("usr/lib/x86_64-linux-gnu")
	cmd := exec.Command(e.path("lib64/ld-linux-x86-64.so.2"), append([]string{"--library-path", lib,
		e.path("usr/bin", program), "-L", e.path("usr/share/qemu"), "-L", e.path("usr/share/seabios")}, args...)...)
	cmd.Env = append(os.Environ(), "QEMU_MODULE_DIR="+filepath.Join(lib, "qemu"))
	return cmd
}

func (e emulator) path(names ...string) string {
	return filepath.Join(append([]string{e.tree}, names...)...)
}
