package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/gateway/features"
	"github.com/grange-project/grange/internal/gateway/gatewaytest"
)

// Time limits end what hangs on a slow, busy machine; nothing is measured.
const (
	featureLimit = 30 * time.Minute
	sessionLimit = 2 * time.Hour
)

// Paths in VMs.
const (
	bound = "/bound" // the directory under test
	suite = "/suite" // where half comes from
	half  = "/half"
)

// hook is what the site runs in each VM as root, before the job: it makes half a program that the job can be root by,
// for a VM is trusted by nobody.
const hook = "#!/bin/sh\ncp " + suite + "/half " + half + " && chmod 4755 " + half + "\n"

// vmLab is a host, and what the suite needs beside it.
type vmLab struct {
	host *lab.Lab
	top  string // of our directories
	vms  int
}

func newLab(ctx context.Context, programs string) (*vmLab, error) {
	top, err := os.MkdirTemp("/tmp", "gateways-")
	if err != nil {
		return nil, err
	}
	l := &vmLab{top: top}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(top, "suite",
		"half"), "./e2e/gateways/half")
	build.Dir = lab.Source()
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	path := filepath.Join(top, "hook")
	err = errors.Join(os.Chmod(top, 0o755), os.WriteFile(path, []byte(hook), 0o755))
	if out, failed := build.CombinedOutput(); failed != nil {
		err = errors.Join(err, fmt.Errorf("build half: %w\n%s", failed, out))
	}
	if err == nil {
		l.host, err = lab.Start(ctx, lab.Options{Programs: programs,
			Config: fmt.Sprintf("hook = %q\n[limits]\ncpus = \"100%%\"\n", path)}) // two VMs at a time, of one user
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(top))
	}
	return l, nil
}

func (l *vmLab) close() error { return errors.Join(l.host.Close(), os.RemoveAll(l.top)) }

// directory makes one of a user's, in one that nobody else writes.
func (l *vmLab) directory(of gatewaytest.Identity) (string, error) {
	parent, err := os.MkdirTemp(l.top, "host")
	dir := filepath.Join(parent, "dir")
	return dir, errors.Join(err, os.Chmod(parent, 0o755), os.Mkdir(dir, 0o700),
		os.Chown(dir, int(of.UID), int(of.GID)))
}

// machine is a VM: the `grange exec` of a user that runs half there.
type machine struct {
	gatewaytest.VM
	cmd  *exec.Cmd
	errs bytes.Buffer
}

// withSSHFS is a micro image that has sshfs, which the gateway sftp needs in the VM.
const withSSHFS = "micro-sshfs"

// image returns the options by which a VM has what a gateway needs in it.
func (l *vmLab) image(ctx context.Context, g features.Gateway) ([]string, error) {
	if g.Name != farm.SFTP {
		return nil, nil
	}
	if l.host.Grange(ctx, "image", "show", withSSHFS).Run() != nil {
		if out, err := l.host.Grange(ctx, "image", "build", "micro", withSSHFS, "--package",
			"sshfs").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build an image with sshfs: %w\n%s", err, out)
		}
	}
	return []string{"--image", withSSHFS}, nil
}

// boot makes a VM that has dir by a gateway.
func (l *vmLab) boot(ctx context.Context, dir string, g features.Gateway, readOnly bool, of gatewaytest.Identity,
	args ...string) (*machine, error) {
	image, err := l.image(ctx, g)
	if err != nil {
		return nil, err
	}
	l.vms++
	m := &machine{cmd: l.host.Exec(ctx, slices.Concat(image, []string{"--memory", "512M", "--workdir", "/",
		"--bind", dir + ":" + bound + options(g, readOnly),
		"--bind", filepath.Join(l.top, "suite") + ":" + suite + ":ro:gateway=fuse", "--", half}, args)...)}
	m.cmd.Dir, m.cmd.Stderr = "/", &m.errs
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: of.UID, Gid: of.GID,
		Groups: of.Groups}}
	in, err := m.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	m.VM = gatewaytest.VM{Dir: bound, In: in, Out: out, Kill: func() { m.cmd.Process.Kill() }}
	return m, m.cmd.Start()
}

// end ends a VM, and returns what was said of it.
func (m *machine) end() string {
	m.In.(io.Closer).Close()
	timer := time.AfterFunc(time.Minute, m.Kill)
	defer timer.Stop()
	m.cmd.Wait()
	return m.errs.String()
}

// gateway runs the contract on one.
func (f *figures) gateway(ctx context.Context, l *vmLab, g features.Gateway, only []string) {
	judge := func(feature string, failed []string) {
		wrong := gatewaytest.Judge(g, feature, failed)
		if _, lacks := g.Lacks[feature]; lacks && len(wrong) == 0 {
			f.Lacking++
		}
		f.result(string(g.Name), feature, wrong)
	}
	chosen := func(name string) bool { return len(only) == 0 || slices.Contains(only, name) }
	for _, s := range gatewaytest.Sessions() {
		s.Instead = g.Instead
		s.Features = slices.DeleteFunc(s.Features, func(name string) bool { return !chosen(name) })
		if len(s.Features) > 0 && ctx.Err() == nil {
			l.session(ctx, g, s, judge)
		}
	}
	if chosen("disconnect") {
		judge("disconnect", said(l.disconnect(ctx, g)))
	}
	if chosen("garbage") {
		f.result(string(g.Name), "garbage", said(l.garbage(ctx, g)))
	}
}

// options are those of a bind.
func options(g features.Gateway, readOnly bool) string {
	text := ":gateway=" + string(g.Name)
	if readOnly {
		text = ":ro" + text
	}
	return text
}

// session boots the VMs of a session, and tries its features in them.
func (l *vmLab) session(ctx context.Context, g features.Gateway, s gatewaytest.Session, judge func(string, []string)) {
	ctx, cancel := context.WithTimeout(ctx, sessionLimit)
	defer cancel()
	var machines []*machine
	var vms []gatewaytest.VM
	dir, err := l.directory(s.Caller)
	for range s.VMs {
		if err != nil {
			break
		}
		var m *machine
		if m, err = l.boot(ctx, dir, g, s.ReadOnly, s.Caller); err == nil {
			machines, vms = append(machines, m), append(vms, m.VM)
		}
	}
	if err != nil {
		judge(s.Features[0], said(err))
	} else {
		s.Run(dir, vms, featureLimit, func(feature string, failed []string) {
			if slices.ContainsFunc(failed, func(what string) bool { return strings.Contains(what, " is lost: ") }) {
				failed = []string{strings.Join(failed, "; ")}
				for _, m := range machines {
					failed[0] += "\n" + m.end()
				}
			}
			judge(feature, failed)
		})
	}
	for _, m := range machines {
		m.end()
	}
}

func said(err error) []string {
	if err == nil {
		return nil
	}
	return []string{err.Error()}
}

// disconnect kills what serves a VM that is at work: the VM ends, and nothing of it is left.
func (l *vmLab) disconnect(ctx context.Context, g features.Gateway) error {
	ctx, cancel := context.WithTimeout(ctx, featureLimit)
	defer cancel()
	of := gatewaytest.Sessions()[0].Caller
	dir, err := l.directory(of)
	if err != nil {
		return err
	}
	m, err := l.boot(ctx, dir, g, false, of, "busy", bound)
	if err != nil {
		return err
	}
	if _, err := io.ReadFull(m.Out, make([]byte, len("busy\n"))); err != nil {
		return fmt.Errorf("it is not busy: %w\n%s", err, m.end())
	}
	if len(servers(of.UID, dir)) == 0 {
		return fmt.Errorf("nobody serves the directory\n%s", m.end())
	}
	m.Kill()
	m.end()
	if left := append(l.host.Leaks(ctx), servers(of.UID, dir)...); len(left) > 0 {
		return fmt.Errorf("left: %s", strings.Join(left, "; "))
	}
	return nil
}

// servers are the processes of a user that know a directory: by their mounts, or as a word of their command line.
// Another suite may run beside this one, as the same user.
func servers(uid uint32, dir string) (list []string) {
	name := filepath.Base(filepath.Dir(dir)) // which no other has; mounts have their paths below their file systems
	all, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, path := range all {
		status, _ := os.ReadFile(path)
		mounts, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "mountinfo"))
		words, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if strings.Contains(string(status), fmt.Sprintf("\nUid:\t%d\t", uid)) &&
			strings.Contains(string(mounts)+string(words), name) {
			what, _, _ := strings.Cut(string(status), "\n")
			list = append(list, path+" "+what)
		}
	}
	return list
}
