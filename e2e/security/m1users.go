package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/e2e/lab"
)

// brokenOut starts a VM of each of two accounts, and has a process with the user and groups of the one's QEMU, as a
// guest that breaks out is, reach for all that the host has of the other: disks, sockets, monitor, memory; and for what
// is root's alone. What the QEMU of the other VM can open itself shows that the attack looks at the right places.
func brokenOut(ctx context.Context, s *site) error {
	l, err := s.lab(ctx)
	if err != nil {
		return err
	}
	var jobs []*sleeper
	for n := range 2 {
		a, err := s.account(3 + n)
		if err != nil {
			return err
		}
		job, err := s.sleep(ctx, l, a, "--memory", "192M", "--scratch", "32M")
		if err != nil {
			return err
		}
		defer job.end()
		jobs = append(jobs, job)
	}
	targets, err := targetsOf(l, jobs[1].vm.Name, jobs[1].qemu)
	if err != nil {
		return err
	}
	own, err := s.reach(ctx, jobs[1].qemu, targets)
	if err != nil {
		return err
	}
	if !strings.Contains(own, "scratch.raw") {
		return fmt.Errorf("the attack does not open a VM's disk even as its own QEMU; it opens:\n%s", own)
	}
	reached, err := s.reach(ctx, jobs[0].qemu, targets)
	if err != nil {
		return err
	}
	if reached != "" {
		return breach("who breaks out of one VM has of another one:\n%s", reached)
	}
	return nil
}

// targetsOf are what there is of a VM, and what is root's.
func targetsOf(l *lab.Lab, name string, pid int) ([]string, error) {
	targets := []string{fmt.Sprintf("signal:%d", pid), fmt.Sprintf("trace:%d", pid)}
	for _, file := range []string{"mem", "environ", "maps", "fd"} {
		targets = append(targets, fmt.Sprintf("/proc/%d/%s", pid, file))
	}
	for _, file := range []string{"lv/run/libvirt-sock", "lv/run/libvirt-admin-sock", "lv/etc/qemu.conf",
		"lv/log/qemu/" + name + ".log", "run/machines"} {
		targets = append(targets, filepath.Join(l.Dir, file))
	}
	n := len(targets)
	for _, dir := range []string{"state/vm", "run/vm", "lv/lib/qemu", "lv/run/qemu"} {
		err := filepath.WalkDir(filepath.Join(l.Dir, dir), func(path string, e fs.DirEntry, err error) error {
			// libvirt makes files of processes' numbers for all to read, and they say no more than ps.
			if err == nil && !e.IsDir() && strings.Contains(path, name) && filepath.Ext(path) != ".pid" {
				targets = append(targets, path)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if len(targets) < n+4 { // a disk, a console, a control port, a monitor
		return nil, fmt.Errorf("there is little of VM %s: %v", name, targets[n:])
	}
	return targets, nil
}

// reach returns what a process with the user and groups of another one gets.
func (s *site) reach(ctx context.Context, as int, targets []string) (string, error) {
	credential, err := credentialOf(as)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, s.path("self"), append([]string{actFlag, "reach"}, targets...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return string(bytes.TrimSpace(out)), err
}

// credentialOf reads a process's user and groups.
func credentialOf(pid int) (*syscall.Credential, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, err
	}
	ids := func(key string) (all []uint32) {
		_, rest, _ := strings.Cut(string(text), "\n"+key+":")
		line, _, _ := strings.Cut(rest, "\n")
		for _, word := range strings.Fields(line) {
			if id, err := strconv.ParseUint(word, 10, 32); err == nil {
				all = append(all, uint32(id))
			}
		}
		return all
	}
	uid, gid := ids("Uid"), ids("Gid")
	if len(uid) == 0 || len(gid) == 0 || uid[0] == 0 {
		return nil, fmt.Errorf("process %d has users %v, groups %v", pid, uid, gid)
	}
	return &syscall.Credential{Uid: uid[0], Gid: gid[0], Groups: ids("Groups")}, nil
}

// reachFor is the role of a process that has broken out: it prints which targets it gets.
func reachFor(targets []string) error {
	for _, target := range targets {
		if err := reachOne(target); err == nil {
			fmt.Println(target)
			// an older agent has no such file
		} else if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %w", target, err)
		}
	}
	return nil
}

func reachOne(target string) error {
	what, number, _ := strings.Cut(target, ":")
	pid, _ := strconv.Atoi(number)
	switch what {
	case "signal":
		return syscall.Kill(pid, 0)
	case "trace":
		return unix.PtraceSeize(pid)
	}
	info, err := os.Stat(target)
	if err != nil {
		return err
	}
	switch {
	case info.Mode().Type() == fs.ModeSocket:
		c, err := net.DialTimeout("unix", target, time.Second)
		if err == nil {
			c.Close()
		}
		return err
	case info.IsDir():
		_, err := os.ReadDir(target)
		return err
	}
	f, err := os.Open(target)
	if err != nil {
		return err
	}
	defer f.Close()
	if strings.HasSuffix(target, "/mem") || info.Size() > 0 { // that it opens is enough
		return nil
	}
	_, err = f.Read(make([]byte, 1)) // what the kernel makes up asks when it is read
	return err
}
