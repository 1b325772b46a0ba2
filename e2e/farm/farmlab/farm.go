// Package farmlab runs a whole farm for tests and demonstrations: one or several servers, their database, and hosts,
// each with a libvirtd and an agent in a network namespace of its own. All lies in one directory. It needs root and the
// packages that scripts/install-packages installs.
package farmlab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/internal/store/storetest/postgres"
)

// Image is the image of VMs: the micro image with an SSH server.
const Image = "cloud"

// Options say what farm.
type Options struct {
	Cells    []string // of each host: host N of the farm is enrolled into cell N of the list
	Farm     string   // what `grange apply` gets, as TOML
	Servers  int      // 0: 1
	Postgres bool     // instead of SQLite; more than one server needs it
	Slurm    bool     // each host has the jobs of a slurmd that is called as it is
	Agent    string   // TOML added to each agent's configuration
	Server   string   // TOML added to each server's configuration
	Out      io.Writer
	// Programs is a directory with grange and grange-guest; "": those of this tree are built.
	Programs string
}

// Farm is a farm that runs.
type Farm struct {
	Dir      string
	Hosts    []*lab.Lab
	Servers  []*Server
	Binary   string // the grange program of people; each server and each host has its own
	Store    string // the servers' database
	programs string
	network  *network
	postgres *postgres.Server // nil: SQLite
	options  Options
}

// Start brings a farm up: when it returns, all hosts are enrolled and heard of.
func Start(ctx context.Context, o Options) (f *Farm, err error) {
	if os.Getuid() != 0 {
		return nil, errors.New("a farm needs root: it makes network namespaces and runs libvirtds")
	}
	o.Servers = max(o.Servers, 1)
	dir, err := os.MkdirTemp("/tmp", "gf")
	if err != nil {
		return nil, err
	}
	f = &Farm{Dir: dir, programs: filepath.Join(dir, "bin"), options: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if err := os.Chmod(dir, 0o755); err != nil { // QEMU and PostgreSQL do not run as root
		return f, err
	}
	if o.Programs != "" {
		f.programs = o.Programs
	} else {
		f.say("building the programs")
		if err := lab.Build(ctx, f.programs); err != nil {
			return f, err
		}
	}
	f.Binary = filepath.Join(f.programs, "grange")
	f.network = newNetwork(filepath.Base(dir), len(o.Cells))
	if err := f.network.up(ctx); err != nil {
		return f, err
	}
	if err := f.startServers(ctx); err != nil {
		return f, err
	}
	if o.Farm != "" {
		if err := f.Apply(ctx, o.Farm); err != nil {
			return f, err
		}
	}
	return f, f.startHosts(ctx)
}

func (f *Farm) say(format string, args ...any) {
	if f.options.Out != nil {
		fmt.Fprintf(f.options.Out, format+"\n", args...)
	}
}

// Network is the path of the network namespace of the servers.
func (f *Farm) Network() string { return path(f.network.hub()) }

func (f *Farm) path(name string) string { return filepath.Join(f.Dir, name) }

// Grange is a command of the program, told of the first server that runs: an administrator's, for it is root on the
// server's socket.
func (f *Farm) Grange(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, f.Binary, args...)
	cmd.Env = append(os.Environ(), "GRANGE_SERVER="+f.running().Address(), "HOME="+f.Dir)
	return cmd
}

// Run runs a command of the program, and returns what it printed.
func (f *Farm) Run(ctx context.Context, args ...string) (string, error) {
	var errs strings.Builder
	cmd := f.Grange(ctx, args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("grange %s: %w\n%s%s", strings.Join(args, " "), err, out, errs.String())
	}
	return string(out), nil
}

// Apply gives the servers a farm file.
func (f *Farm) Apply(ctx context.Context, text string) error {
	path := f.path("farm.toml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	_, err := f.Run(ctx, "apply", "-f", path)
	return err
}

// Close ends everything and removes the farm's directory.
func (f *Farm) Close() error {
	var errs []error
	for _, h := range f.Hosts {
		errs = append(errs, h.Close())
	}
	for _, s := range f.Servers {
		errs = append(errs, s.Stop())
	}
	if f.postgres != nil {
		errs = append(errs, f.postgres.Stop())
	}
	if f.network != nil {
		errs = append(errs, f.network.down())
	}
	return errors.Join(append(errs, lab.RemoveAll(f.Dir))...)
}

// Await asks until the answer is yes, and returns the error that comes with it.
func Await(ctx context.Context, limit time.Duration, what string, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s: not within %v", what, limit))
	defer cancel()
	for {
		ok, err := ask()
		if ok {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// Logs are the ends of all logs, for who looks for what went wrong.
func (f *Farm) Logs() string {
	var b strings.Builder
	for i, s := range f.Servers {
		fmt.Fprintf(&b, "\n== server %d\n%s", i, end(s.Log()))
	}
	for i, h := range f.Hosts {
		fmt.Fprintf(&b, "\n== agent of %s\n%s", HostName(i), end(h.AgentLog()))
	}
	return b.String()
}

// end is the last lines of a log.
func end(text string) string {
	const lines = 25
	all := strings.SplitAfter(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "")
}
