package gridenginelab

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/grange-project/grange/internal/batch/gridengine"
	"github.com/grange-project/grange/internal/batch/gridengine/setup"
	"github.com/grange-project/grange/internal/program"
)

// Master is the host of the cell's master, and its first execution host.
const Master = master

// Second is the name of the host that AddSecond makes.
const Second = "sge2"

// AddSecond makes a second execution host, as `grange gridengine host add` does.
func (l *Lab) AddSecond(ctx context.Context) error {
	if err := l.cell.addHost(ctx, Second, 2); err != nil {
		return err
	}
	cell := &gridengine.Cell{Run: l.Run(program.Start), Dir: programs}
	if err := setup.AddHost(ctx, cell, setup.NewHost{Name: Second, Queue: vmQueue, Group: "@allhosts",
		Slots: slots}); err != nil {
		return err
	}
	return l.cell.startExecd(ctx, Second)
}

// Run runs the cell's commands where they reach its master: in the network of its first host.
func (l *Lab) Run(start program.Run) program.Run {
	l.cell.mu.Lock()
	ns := fmt.Sprintf("/proc/%d/ns/", l.cell.hosts[master].holder.Process.Pid)
	l.cell.mu.Unlock()
	return func(ctx context.Context, c program.Call) ([]byte, error) {
		if !filepath.IsAbs(c.Path) {
			c.Path = filepath.Join(programs, c.Path)
		}
		c.Args = append([]string{"--net=" + ns + "net", "--mount=" + ns + "mnt", "--uts=" + ns + "uts", "--", c.Path},
			c.Args...)
		c.Path = "/usr/bin/nsenter"
		c.Env = append(slices.Clone(c.Env), l.cell.env()...)
		return start(ctx, c)
	}
}

// Command runs a command of the cell's administrator to its end.
func (l *Lab) Command(ctx context.Context, name string, args ...string) (string, error) {
	return l.cell.run(ctx, master, append([]string{filepath.Join(programs, name)}, args...)...)
}

// AsUser runs a command of the cell as the user whose jobs run here.
func (l *Lab) AsUser(ctx context.Context, name string, args ...string) (string, error) {
	return l.asUser(ctx, l.Home(), nil, append([]string{filepath.Join(programs, name)}, args...)...)
}

// Program is the path of one of the cell's programs.
func Program(name string) string { return filepath.Join(programs, name) }

// Queue is the one for jobs in VMs, and HostQueue the one for jobs on the host.
const (
	Queue     = vmQueue
	HostQueue = metalQueue
)

// UserCommand is a command line on the cell's first host, which the user runs whose jobs run here.
func (l *Lab) UserCommand(ctx context.Context, argv ...string) *exec.Cmd {
	return l.cell.command(ctx, master, userArgv(l.Home(), argv)...)
}

// Follow lets Wait wait for a job that was not submitted by Submit.
func (l *Lab) Follow(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.jobs[id] = &job{file: l.path("out/none")}
}

// Accounting is the cell's accounting file.
func (l *Lab) Accounting() string { return l.cell.path("root/default/common/accounting") }

// Messages are the ends of the daemons' logs.
func (l *Lab) Messages() string { return l.cell.messages() }
