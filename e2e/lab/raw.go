package lab

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// guestUp is the first thing that grange-guest writes.
const guestUp = "grange-guest: up"

// RawArgs is a QEMU as one would start it by hand for this guest: as lean as ours. An empty bios is QEMU's own choice.
func RawArgs(image Image, bios string) []string {
	cpu, accel := "max,la57=off", "tcg"
	if Accelerator() == "kvm" {
		cpu, accel = "host", "kvm"
	}
	var firmware []string
	if bios != "" {
		firmware = []string{"-bios", bios}
	}
	return append(firmware, "-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35,usb=off,vmport=off", "-accel", accel, "-cpu", cpu,
		"-smp", "1", "-m", "1024", "-no-hpet", "-no-reboot", "-kernel", image.Kernel, "-initrd", image.Initrd, "-append", image.Cmdline,
		"-device", "virtio-serial-pci", "-chardev", "null,id=c0", "-device", "virtserialport,chardev=c0,name=org.grange.control")
}

// RawBoot is the time from QEMU's start to grange-guest's first word. It is held to the CPUs that the other side's VM had: on
// shared machines one CPU may be a tenth slower than the next, for minutes.
func RawBoot(ctx context.Context, image Image, bios, cpus string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "taskset", append([]string{"-c", cpus, "qemu-system-x86_64", "-serial", "stdio"}, RawArgs(image, bios)...)...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	console, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
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
