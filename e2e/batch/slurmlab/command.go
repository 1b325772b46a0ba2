package slurmlab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// programs are Slurm's, of one lab.
type programs struct {
	o         Options
	dir       string // where everything of this Slurm lies
	nodes     []string
	root      *root // nil: this machine's own
	installed bool  // this machine's own: see Installed
}

// environ is what Slurm's programs get: nothing of ours. $HOME is where the jobs' files lie.
func (p *programs) environ(user string) []string {
	conf := p.path("etc/slurm.conf")
	if user != "root" && !p.o.NoPlugin {
		conf = p.path("submit/slurm.conf")
	}
	env := []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "HOME=" + p.Home(), "USER=" + user,
		"LOGNAME=" + user, "SHELL=/bin/sh"}
	if p.installed {
		return env
	}
	return append(env, "SLURM_CONF="+conf)
}

// tool is one of Slurm's programs, or munged, as root.
func (p *programs) tool(ctx context.Context, name string, args ...string) *exec.Cmd {
	return p.Command(ctx, "root", name, args...)
}

// Command is one of Slurm's programs as a user of this machine runs it: root or nobody.
func (p *programs) Command(ctx context.Context, user, name string, args ...string) *exec.Cmd {
	if p.root != nil {
		return p.root.command(ctx, user, p.environ(user), name, args...)
	}
	if !filepath.IsAbs(name) {
		for _, dir := range []string{"/usr/sbin", "/usr/bin"} {
			if exists(filepath.Join(dir, name)) {
				name = filepath.Join(dir, name)
				break
			}
		}
	}
	if p.o.Network != "" {
		enter := []string{"--net=" + p.o.Network}
		if user != "root" {
			enter = append(enter, fmt.Sprintf("--setuid=%d", nobody), fmt.Sprintf("--setgid=%d", nobody))
		}
		name, args = "/usr/bin/nsenter", append(append(enter, "--", name), args...)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Dir = p.environ(user), "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if user != "root" {
		cmd.Dir = p.Home()
	}
	if user != "root" && p.o.Network == "" { // who enters one has to be root before
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		cmd.Dir = p.Home()
	}
	return cmd
}

// Slurm runs one of Slurm's programs and returns what it printed. They hang when a daemon does; this does not.
func (p *programs) Slurm(ctx context.Context, user, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	return run(p.Command(ctx, user, name, args...))
}

func run(cmd *exec.Cmd) (string, error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err,
			strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// Conf is the path of slurm.conf, for those who look at it.
func (p *programs) Conf() string { return p.path("etc/slurm.conf") }

// Dir is where everything of this Slurm lies.
func (p *programs) Dir() string { return p.dir }

// Node is the name of its first node.
func (p *programs) Node() string { return p.nodes[0] }

// Cgroups reports whether Slurm uses control groups on this machine; without them it freezes, limits and accounts
// little.
func (l *Lab) Cgroups() bool { return l.cgroups }

// Reconfigure writes slurm.conf anew with other lines at its end, and has the daemons read it.
func (l *Lab) Reconfigure(ctx context.Context, extra string) error {
	l.o.Extra = extra
	if err := l.configure(); err != nil {
		return err
	}
	_, err := l.Slurm(ctx, "root", "scontrol", "reconfigure")
	return err
}

// copyFile copies a program.
func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o755)
}
