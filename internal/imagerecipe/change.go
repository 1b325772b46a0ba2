package imagerecipe

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/sandbox"
	"github.com/grange-project/grange/internal/vmimage"
)

//go:embed change.sh
var changeScript []byte

// changeModules are what file systems of others' images need.
var changeModules = []string{"xfs", "btrfs", "vfat", "nls_cp437", "nls_ascii", "nls_utf8"}

// changeTime bounds a change: a VM under emulation that installs packages.
const changeTime = 2 * time.Hour

// change changes a copy of a disk in a VM: the host never mounts it, and none of its programs runs on the host.
func change(ctx context.Context, r Recipe, o Options) (_ Built, err error) {
	store, err := vmimage.Open(filepath.Join(o.Cache, "store"))
	if err != nil {
		return Built{}, err
	}
	defer store.Close()
	from := r.From
	if !filepath.IsAbs(from) {
		from = filepath.Join(o.Dir, from)
	}
	keep := func(string) bool { return false }
	if err := sweep(store); err != nil {
		return Built{}, err
	}
	name := fmt.Sprintf("change-%d", os.Getpid())
	o.Progress("reading " + from)
	disk, err := store.Fetch(ctx, vmimage.FetchOptions{Name: name + "-from", Source: from, Sum: r.SHA256})
	if err != nil {
		return Built{}, err
	}
	defer store.Remove(name+"-from", keep)
	if disk.Kind != vmimage.Disk {
		return Built{}, bad("%s is not a disk image", from)
	}
	vm, err := store.BuildMicro(ctx, vmimage.BuildOptions{Name: name + "-vm", GuestBinary: o.GuestBinary,
		Modules: changeModules, Files: map[string][]byte{"change": changeScript}, Progress: o.Progress})
	if err != nil {
		return Built{}, err
	}
	defer store.Remove(name+"-vm", keep)
	dir, remove, err := workDir()
	if err != nil {
		return Built{}, err
	}
	defer remove()
	if err := changeIn(ctx, r, o, dir, disk, vm); err != nil {
		return Built{}, err
	}
	// QEMU wrote it while it ran programs of the image: its header is checked like a stranger's.
	made := filepath.Join(dir, "vm", changed)
	if err := regular(made); err != nil {
		return Built{}, err
	}
	checked, err := store.Import(ctx, name+"-made", made, func(_, _ farm.Bytes) {})
	if err != nil {
		return Built{}, err
	}
	defer store.Remove(name+"-made", keep)
	return finish(r.Kind, checked.Disk(), o.Out)
}

// changeIn runs the VM in a directory, which has the changed disk afterwards.
func changeIn(ctx context.Context, r Recipe, o Options, dir string, disk, vm vmimage.Image) error {
	own := filepath.Join(dir, "vm")
	if err := os.Mkdir(own, 0o755); err != nil {
		return err
	}
	if err := copyDisk(ctx, disk, own); err != nil {
		return err
	}
	kernel := vm.Kernel()
	if err := errors.Join(writePayload(filepath.Join(own, "payload"), r, o.Dir, r.time(), true),
		copyFile(kernel, filepath.Join(own, filepath.Base(kernel))), copyFile(vm.Initrd(), filepath.Join(own, "initrd")),
		pad(filepath.Join(own, "payload"))); err != nil {
		return err
	}
	if err := giveAway(own); err != nil {
		return err
	}
	memory, err := farm.ParseBytes(r.Memory)
	if err != nil {
		return bad("memory %q: %v", r.Memory, err)
	}
	ctx, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	argv := qemu(filepath.Base(kernel), vm.Cmdline, memory)
	return watchChange(exec.CommandContext(ctx, argv[0], argv[1:]...), own, o.Progress)
}

// sweep removes what builds that were killed have left in a store.
func sweep(store *vmimage.Store) (err error) {
	all, _ := store.List() // what cannot be read is left alone
	for _, i := range all {
		var pid int
		if n, _ := fmt.Sscanf(i.Name, "change-%d-", &pid); n == 1 && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			err = errors.Join(err, store.Remove(i.Name, func(string) bool { return false }))
		}
	}
	return err
}

// changed is the disk in the directory of the VM.
const changed = "disk.qcow2"

// copyDisk makes a qcow2 of a disk in a directory, where qemu-img sees nothing else of this host.
func copyDisk(ctx context.Context, disk vmimage.Image, dir string) error {
	input := filepath.Join(dir, "input")
	out, err := exec.CommandContext(ctx, "/usr/bin/cp", "--sparse=always", disk.Disk(), input).CombinedOutput()
	if err != nil {
		return buildError(complaint(string(out)), err)
	}
	at, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer at.Close()
	convert := exec.CommandContext(ctx, "/usr/bin/qemu-img", "convert", "-f", disk.Format, "-O", "qcow2", "input", changed)
	var said bytes.Buffer
	convert.Stdout, convert.Stderr = &said, &said
	const more = 64 << 20 // than the disk has: the tables of a qcow2
	release, err := sandbox.StartConverter(convert, at, int64(disk.VirtualSize)+more)
	if err == nil {
		err = convert.Wait()
		release()
	}
	if err != nil {
		return buildError(complaint(said.String()), err)
	}
	return errors.Join(os.Remove(input), regular(filepath.Join(dir, changed)))
}

// regular refuses what a program without rights has left in the place of a file.
func regular(file string) error {
	info, err := os.Lstat(file)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is a %s", file, info.Mode().Type())
	}
	return err
}

// giveAway makes the files of a directory the sandbox's user's.
func giveAway(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.Lchown(filepath.Join(dir, e.Name()), sandbox.UID(), -1))
	}
	return err
}

// pad fills the last sector of a file that becomes a disk.
func pad(file string) error {
	const block = 4096
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	return os.Truncate(file, (info.Size()+block-1)&^(block-1))
}

// qemu is a VM with the files of its directory. It is emulated: who has no rights has no /dev/kvm either.
func qemu(kernel, cmdline string, memory farm.Bytes) []string {
	drive := func(file, format, serial string) []string {
		return []string{"-drive", fmt.Sprintf("if=none,id=%s,file=%s,format=%s,cache=unsafe", serial, file, format),
			"-device", fmt.Sprintf("virtio-blk-pci,drive=%[1]s,serial=%[1]s", serial)}
	}
	argv := []string{"/usr/bin/qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-machine",
		"q35,usb=off", "-accel", "tcg,tb-size=256,thread=multi", "-cpu", "max,la57=off", "-smp", "2", "-m",
		fmt.Sprint(uint64(memory / farm.MiB)), "-no-reboot", "-kernel", kernel, "-initrd", "initrd", "-append",
		cmdline + " rdinit=/change", "-serial", "stdio", "-netdev", "user,id=net", "-device",
		"virtio-net-pci,netdev=net,romfile="}
	argv = append(argv, drive(changed, "qcow2", "image")...)
	return append(argv, drive("payload", "raw", "payload")...)
}

const changeMark = "GRANGE-CHANGE "

// watchChange runs QEMU in the sandbox, tells what the VM prints, and returns whether it did all.
func watchChange(cmd *exec.Cmd, dir string, progress func(string)) error {
	at, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer at.Close()
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "HOME=/"}
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	release, err := sandbox.StartFetcher(cmd, at)
	if err != nil {
		return buildError("no VM", err)
	}
	defer release()
	verdict, last := "", ""
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := farm.Clean(strings.TrimSpace(lines.Text()), 300)
		if said, ok := strings.CutPrefix(line, changeMark); ok {
			verdict = said
		} else if line != "" {
			progress(line)
			last = line
		}
	}
	err = cmd.Wait()
	switch {
	case verdict == "done":
		return nil
	case verdict != "" || stderr.Len() == 0:
		return buildError("in the VM: "+last, err)
	}
	return buildError(complaint(stderr.String()), err)
}
