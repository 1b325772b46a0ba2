package slurmlab

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/internal/batch/slurm/setup"
)

// installedHome is where the files of the jobs are. The agent of the host binds it into every VM.
const installedHome = "/srv/slurmlab"

// Installed is the Slurm of this machine, of its packages and under its systemd, with grange's own packages and what
// `grange slurm install` wrote. All of it must run, with accounting, and be nobody else's: it is broken and mended.
// slots is how many jobs run at a time.
func Installed(slots int) func(context.Context, Options) (*Lab, error) {
	return func(ctx context.Context, o Options) (*Lab, error) {
		if os.Getuid() != 0 {
			return nil, errors.New("Slurm of this machine is broken and mended by root")
		}
		node, err := os.Hostname()
		if err != nil {
			return nil, err
		}
		o.CPUs, o.Accounting = slots, true
		l := newLab(&programs{o: o, installed: true, dir: installedHome, nodes: []string{node}})
		l.host, l.cgroups = lab.Installed(), true
		if err := errors.Join(os.MkdirAll(l.Home(), 0o755), os.MkdirAll(l.path("run"), 0o700),
			os.Chown(l.Home(), nobody, nobody)); err != nil {
			return nil, err
		}
		out, err := l.tool(ctx, "slurmd", "-V").Output()
		if err != nil {
			return nil, fmt.Errorf("slurmd -V: %w", err)
		}
		if l.release, err = setup.ParseRelease(string(out)); err != nil {
			return nil, err
		}
		if wrong := l.Sound(ctx); len(wrong) > 0 {
			return nil, fmt.Errorf("this machine's Slurm: %q", wrong)
		}
		return l, nil
	}
}

// file is where a part of grange lies that a test takes away.
func (l *Lab) file(part string) string {
	installed := map[string]string{"bin/grange": "/usr/bin/grange",
		"plugin/grange_spank.so": "/usr/lib/grange/grange_spank.so", "bin/prolog": "/etc/slurm/prolog.d/50-grange"}
	if l.installed {
		return installed[part]
	}
	return l.path(part)
}
