package slurmlab

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/program"
)

// root is another Debian's tree in a mount namespace of its own: the tree read-only below an overlay, the lab's
// directories at their own paths, and this machine's /proc, /sys and /dev, so that processes and control groups are the
// same for both.
type root struct {
	holder *exec.Cmd // keeps the namespace
	stdin  *os.File
}

// enter makes the namespace. dirs are seen in it as outside.
func enter(tree string, dirs ...string) (*root, error) {
	work := filepath.Join(dirs[0], "root")
	for _, dir := range []string{"up", "work", "merged"} {
		if err := os.MkdirAll(filepath.Join(work, dir), 0o755); err != nil {
			return nil, err
		}
	}
	var binds []string
	for _, dir := range dirs {
		if dir != "" {
			binds = append(binds, dir)
		}
	}
	// Mounts are made below the merged tree before it becomes the root. exec: the holder is the process that we
	// started.
	script := `set -e
tree=$1 work=$2; shift 2
mount -t tmpfs -o mode=755 none "$work/up"; mkdir "$work/up/up" "$work/up/work"
mount -t overlay -o "lowerdir=$tree,upperdir=$work/up/up,workdir=$work/up/work" none "$work/merged"
m=$work/merged
mount -t tmpfs -o mode=1777 none "$m/tmp"; mount -t tmpfs -o mode=755 none "$m/run"
for d in "$@"; do mkdir -p "$m$d"; mount --bind "$d" "$m$d"; done
mount --rbind /proc "$m/proc"; mount --rbind /sys "$m/sys"; mount --rbind /dev "$m/dev"
cat /etc/hosts >"$m/etc/hosts"
cd "$m"; pivot_root . "$m/mnt" 2>/dev/null || { mount --bind "$m" "$m"; cd "$m"; pivot_root . mnt; }
umount -l /mnt
echo ready
exec cat
`
	cmd := exec.Command("/usr/bin/unshare",
		append([]string{"--mount", "--propagation", "private", "/bin/sh", "-c", script, "root", tree, work},
			binds...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdin = in
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	in.Close()
	r := &root{cmd, out}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "ready\n" {
		r.leave()
		return nil, fmt.Errorf("enter %s: %w: %s", tree, err, errs.String())
	}
	return r, nil
}

// trixie is what a Debian 13 needs for a Slurm 24.11 with the plug-in compiled against its headers.
var trixie = []string{"slurmctld", "slurmd", "slurm-client", "slurmdbd", "slurm-wlm-mysql-plugin", "munge",
	"libslurm-dev", "slurm-wlm-basic-plugins-dev", "gcc", "libc6-dev"}

// StartTrixie is Start with the Slurm of Debian 13.
func StartTrixie(ctx context.Context, o Options) (*Lab, error) {
	var err error
	if o.Root, err = trixieTree(ctx); err != nil {
		return nil, err
	}
	return Start(ctx, o)
}

// PrepareTrixie makes the tree that StartTrixie needs, if there is none yet.
func PrepareTrixie(ctx context.Context) error {
	_, err := trixieTree(ctx)
	return err
}

// trixieTree is made by scripts/debian-root once a machine, in a minute or two.
func trixieTree(ctx context.Context) (string, error) {
	_, source, _, _ := runtime.Caller(0)
	script := filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(filepath.Dir(source)))), "scripts", "debian-root")
	out, err := run(exec.CommandContext(ctx, script, append([]string{"trixie", "-"}, trixie...)...))
	return strings.TrimSpace(out), err
}

// command is a program of that tree. It finds itself in the namespace, as the user, and nothing of ours.
func (r *root) command(ctx context.Context, user string, env []string, name string, args ...string) *exec.Cmd {
	outer := []string{"--target", strconv.Itoa(r.holder.Process.Pid), "--mount", "--root", "--wdns=/"}
	if user != "root" {
		for _, kv := range env {
			if home, ok := strings.CutPrefix(kv, "HOME="); ok {
				outer[len(outer)-1] = "--wdns=" + home
			}
		}
		outer = append(outer, "/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
	}
	if !filepath.IsAbs(name) {
		outer = append(outer, "/usr/bin/env")
	}
	cmd := exec.CommandContext(ctx, "/usr/bin/nsenter", append(append(outer, name), args...)...)
	cmd.Env, cmd.Dir = env, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	return cmd
}

// run is program.Start in that tree, for compiling.
func (r *root) run(ctx context.Context, c program.Call) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	out, err := r.command(ctx, "root", append(c.Env, "PATH=/usr/sbin:/usr/bin:/sbin:/bin"), c.Path,
		c.Args...).CombinedOutput()
	if err != nil {
		return out, fmt.Errorf("%w: %s", err, out)
	}
	return out, nil
}

// leave ends the namespace; its mounts go with the last process in it.
func (r *root) leave() {
	if r == nil {
		return
	}
	r.stdin.Close()
	r.holder.Process.Kill()
	r.holder.Wait()
}
