package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/deathsig"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/filebench"
	"github.com/grange-project/grange/internal/filebench/load"
	"github.com/grange-project/grange/internal/gateway/virtiofs"
	"github.com/grange-project/grange/internal/rawqemu"
	"github.com/grange-project/grange/internal/vmimage"
)

// one is a way in which QEMU alone has directories, with root's rights on the host.
type one struct {
	name  string
	mount string // in the guest
	args  func(dir string) []string
}

const rawVirtiofs = "virtiofs as root"

// unsafe are all.
var unsafe = []one{
	{rawVirtiofs, "-t virtiofs raw", func(dir string) []string {
		return []string{"-object", fmt.Sprintf("memory-backend-memfd,id=m,size=%dM,share=on", rawMemory/farm.MiB), "-numa",
			"node,memdev=m", "-chardev", "socket,id=fs,path=" + socketIn(dir), "-device", "vhost-user-fs-pci,chardev=fs,tag=raw"}
	}},
	{"9p as root", "-t 9p -o trans=virtio,version=9p2000.L,msize=1048576 raw", func(dir string) []string {
		return []string{"-virtfs", "local,path=" + dir + ",mount_tag=raw,security_model=passthrough"}
	}},
}

const (
	rawMemory = farm.GiB
	rawLimit  = 15 * time.Minute
)

func socketIn(dir string) string { return filepath.Join(filepath.Dir(dir), "raw.sock") }

// raw measures in a VM of QEMU alone, of the image that the agent's VMs have.
func (h host) raw(ctx context.Context, parent string, u one) ([]filebench.Result, error) {
	fmt.Println(u.name)
	ctx, cancel := context.WithTimeoutCause(ctx, rawLimit, fmt.Errorf("not over within %v", rawLimit))
	defer cancel()
	dir := filepath.Join(parent, "raw")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	guest, err := h.guest(parent, u)
	if err != nil {
		return nil, err
	}
	if u.name == rawVirtiofs {
		end, err := serveAsRoot(ctx, dir)
		if err != nil {
			return nil, err
		}
		defer end()
	}
	cmd := rawqemu.Command(ctx, guest, append(u.args(dir), "-serial", "stdio")...)
	var complaint, console bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := deathsig.Start(cmd, syscall.SIGKILL); err != nil {
		return nil, err
	}
	results, err := filebench.Watch(io.TeeReader(out, &console), u.name)
	cancel()
	cmd.Wait()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", lastLine(console.String()+complaint.String()), err)
	}
	return results, nil
}

// serveAsRoot starts virtiofsd as its manual has it.
func serveAsRoot(ctx context.Context, dir string) (end func(), err error) {
	program, err := virtiofs.Find(ctx)
	if err != nil {
		return nil, err
	}
	socket := socketIn(dir)
	os.Remove(socket)
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, program, "-f", "--socket-path="+socket, "-o", "source="+dir, "-o", "cache=auto")
	if err := deathsig.Start(cmd, syscall.SIGTERM); err != nil {
		cancel()
		return nil, err
	}
	end = func() { cancel(); cmd.Wait(); os.Remove(socket) }
	for range 200 {
		if _, err := os.Stat(socket); err == nil {
			return end, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	end()
	return nil, errors.New("virtiofsd does not listen")
}

// guest is the micro image with an init of our own, in an archive behind the image's.
func (h host) guest(dir string, u one) (g rawqemu.Guest, err error) {
	store, err := vmimage.Open(h.images)
	if err != nil {
		return g, err
	}
	defer store.Close()
	i, err := store.Get(vmimage.MicroName)
	if err != nil {
		return g, err
	}
	initrd, err := os.ReadFile(i.Initrd())
	if err != nil {
		return g, err
	}
	var archive bytes.Buffer
	archive.Write(initrd)
	archive.Write(make([]byte, (4-len(initrd)%4)%4))
	entry(&archive, "raw-init", h.script(u))
	entry(&archive, "TRAILER!!!", "")
	file := filepath.Join(dir, "raw.initrd")
	if err := os.WriteFile(file, archive.Bytes(), 0o600); err != nil {
		return g, err
	}
	return rawqemu.Guest{Kernel: i.Kernel(), Initrd: file, Cmdline: i.Cmdline + " rdinit=/raw-init", Memory: rawMemory,
		KVM: h.kvm}, nil
}

// script is that init.
func (h host) script(u one) string {
	size, _ := farm.ParseBytes(h.Size)
	limit, _ := time.ParseDuration(h.Time)
	o := load.Options{Dir: "/bench", Size: int64(size), Files: h.Files, Time: limit}
	return fmt.Sprintf(`#!/bin/sh
b=/usr/bin/busybox
$b mkdir -p /proc /sys /dev /bench
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
exec </dev/null >/dev/ttyS0 2>&1
for module in $($b sed -n -e 's/^boot //p' -e 's/^virtiofs //p' /etc/grange/modules); do $b insmod $module; done
$b mount %s /bench && /usr/sbin/grange-guest %s %s
$b poweroff -f
`, u.mount, load.Name, strings.Join(o.Args(), " "))
}

// entry adds a program to an archive of the form "newc".
func entry(w *bytes.Buffer, name, content string) {
	const program = 0o100755
	fmt.Fprintf(w, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00", 0, program, 0, 0, 1, 0,
		len(content), 0, 0, 0, 0, len(name)+1, 0, name)
	w.Write(make([]byte, (4-w.Len()%4)%4))
	w.WriteString(content)
	w.Write(make([]byte, (4-w.Len()%4)%4))
}

func lastLine(text string) (last string) {
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if line := strings.TrimSpace(lines.Text()); line != "" && !strings.HasPrefix(line, "[") {
			last = line
		}
	}
	return last
}
