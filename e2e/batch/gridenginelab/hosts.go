package gridenginelab

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/grange-project/grange/internal/batch/gridengine"
	"github.com/grange-project/grange/internal/batch/gridengine/setup"
	"github.com/grange-project/grange/internal/program"
)

// Master is the host of the cell's master, and its first execution host.
const Master = master

// Queue is the one for jobs in VMs.
const Queue = vmQueue

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

// Accounting is the cell's accounting file.
func (l *Lab) Accounting() string { return l.cell.path("root/default/common/accounting") }

// Messages are the ends of the daemons' logs.
func (l *Lab) Messages() string { return l.cell.messages() }
