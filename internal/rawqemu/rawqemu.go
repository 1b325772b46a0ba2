// Package rawqemu boots a guest with QEMU alone, as one would by hand: what the start of a VM is compared with.
package rawqemu

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/deathsig"
	"github.com/grange-project/grange/internal/farm"
)

// guestUp is the first thing that grange-guest writes.
const guestUp = "grange-guest: up"

const (
	debian  = "/usr/bin/qemu-system-x86_64"
	taskset = "/usr/bin/taskset"
)

// Guest is what to boot, with one vCPU.
type Guest struct {
	Kernel, Initrd, Cmdline string
	Memory                  farm.Bytes
	KVM                     bool
	BIOS                    string // firmware; "": QEMU's own choice
	QEMU                    string // program; "": where Debian has it
}

// argv starts a QEMU for the guest that is as lean as ours: the same CPU model, memory and kind of devices.
func (g Guest) argv() []string {
	cpu, accel := "max,la57=off", "tcg"
	if g.KVM {
		cpu, accel = "host", "kvm"
	}
	argv := []string{cmp.Or(g.QEMU, debian)}
	if g.BIOS != "" {
		argv = append(argv, "-bios", g.BIOS)
	}
	return append(argv, "-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35,usb=off,vmport=off",
		"-accel", accel, "-cpu", cpu, "-smp", "1", "-m", fmt.Sprint(uint64(g.Memory/farm.MiB)), "-no-hpet",
		"-no-reboot", "-kernel", g.Kernel, "-initrd", g.Initrd, "-append", g.Cmdline, "-device", "virtio-serial-pci",
		"-chardev", "null,id=c0", "-device", "virtserialport,chardev=c0,name=org.grange.control")
}

// Command is QEMU for the guest, with more arguments behind its own. It ends with ctx; deathsig.Start has it end with
// this process.
func Command(ctx context.Context, g Guest, more ...string) *exec.Cmd {
	return command(ctx, append(g.argv(), more...))
}

func command(ctx context.Context, argv []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second
	return cmd
}

// Boot returns the time from QEMU's start to grange-guest's first word. QEMU is held to the CPUs that the other side's
// VM had: on shared machines one CPU may be a tenth slower than the next, for minutes.
func Boot(ctx context.Context, g Guest, cpus string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	cmd := command(ctx, append(append([]string{taskset, "-c", cpus}, g.argv()...), "-serial", "stdio"))
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	console, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := deathsig.Start(cmd, syscall.SIGKILL); err != nil {
		return 0, err
	}
	defer func() { cancel(); cmd.Wait() }()
	for lines := bufio.NewScanner(console); lines.Scan(); {
		if strings.Contains(lines.Text(), guestUp) {
			return time.Since(began), nil
		}
	}
	return 0, fmt.Errorf("raw QEMU: the guest never came up: %s", complaint.String())
}
