// Package slurmlab runs a whole Slurm on this machine for tests: munge, slurmctld, one slurmd or several, and on demand
// slurmdbd with MariaDB, in a directory of its own, on ports of its own, beside others. grange's plug-in and prolog are
// in it, and an agent with its VMs. It needs root and what scripts/install-packages batch installs.
package slurmlab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/batch/conform"
	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/internal/batch/slurm/setup"
	"github.com/grange-project/grange/internal/program"
)

// Options change a lab.
type Options struct {
	NoPlugin   bool   // without grange: no plug-in, no prolog, no agent
	Accounting bool   // slurmdbd and MariaDB, for sacct
	Root       string // another Debian's root directory, whose Slurm is used; "": this machine's
	Extra      string // lines appended to slurm.conf
	Prolog     string // a site's own script, which ends with grange's prolog; "": grange's alone
	Plugstack  string // arguments of the plug-in on top of the lab's own
	Agent      string // TOML appended to the agent's configuration; its [batch] takes the place of the lab's
	Image      string // a directory of lab.Lab.Export, whose image is the micro image; "": it is built
	Programs   string // a directory with grange and grange-guest; "": they are built
	CPUs       int    // of a node; 0: those of this machine
	Unconfined bool   // proctrack/linuxproc and task/none, also where there are control groups
	Su         string // a program that slurmd finds in the place of su; "": this machine's
	Contain    bool   // PrologFlags has Contain: each allocation has a step "extern" on its hosts
	OCI        bool   // bundles and oci.conf instead of the plug-in

	Nodes   []string // their names; none: one node with a name that no other lab has
	Network string   // path of a network namespace in which all of it runs; "": the machine's own
}

// Lab is one Slurm.
type Lab struct {
	*programs
	*daemons
	*queue

	host    *lab.Lab // nil without grange
	ports   ports
	release setup.Release
	cgroups bool // Slurm confines, tracks and accounts with control groups
}

func newLab(p *programs) *Lab {
	return &Lab{programs: p, daemons: &daemons{programs: p}, queue: &queue{programs: p, jobs: map[string]*job{}}}
}

var _ conform.System = (*Lab)(nil)

// User is whose jobs they are.
const User = "nobody"

const nobody = 65534

// Start brings a Slurm up.
func Start(ctx context.Context, o Options) (*Lab, error) {
	if os.Getuid() != 0 {
		return nil, errors.New("a Slurm of our own needs root")
	}
	if len(o.Nodes) > mostNodes || o.Network != "" && o.Root != "" {
		return nil, errors.New("no such lab: too many nodes, or another Debian in a network of its own")
	}
	l := newLab(&programs{o: o})
	if err := l.start(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Lab) start(ctx context.Context) error {
	var err error
	if l.ports, err = choosePorts(); err != nil {
		return err
	}
	if l.nodes = l.o.Nodes; len(l.nodes) == 0 {
		l.nodes = []string{"n" + strconv.Itoa(l.ports.base)}
	}
	if l.o.NoPlugin {
		if l.dir, err = os.MkdirTemp("/tmp", "gsl"); err != nil {
			return err
		}
		if err := os.Chmod(l.dir, 0o755); err != nil {
			return err
		}
	} else {
		if l.host, err = lab.Start(ctx, lab.Options{Config: l.agentConfig(), Image: l.o.Image,
			Programs: l.o.Programs}); err != nil {
			return err
		}
		l.dir = filepath.Join(l.host.Dir, "slurm")
		l.host.SlurmNodes = l.nodes
		// The site's bind has to be there before the agent hears of it, and its path is known only now.
		config := l.agentConfig()
		if !strings.Contains(config, "[batch]") {
			config += fmt.Sprintf("\n[batch]\nbinds = [%q]\nrequeues = 2\nwait_timeout = \"3s\"\n", l.Home())
		}
		if err := l.host.Configure(config); err != nil {
			return err
		}
		l.host.SignalAgent(syscall.SIGHUP)
	}
	for _, dir := range []string{"munge", "etc/plugstack.conf.d", "state", "spool", "log", "run", "bin", "plugin",
		"submit", "home"} {
		if err := os.MkdirAll(l.path(dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.Chown(l.Home(), nobody, nobody); err != nil {
		return err
	}
	if l.o.Root != "" {
		if l.root, err = enter(l.o.Root, l.dir, l.hostDir()); err != nil {
			return err
		}
	}
	out, err := l.tool(ctx, "slurmd", "-V").Output()
	if err != nil {
		return fmt.Errorf("slurmd -V: %w", err)
	}
	if l.release, err = setup.ParseRelease(string(out)); err != nil {
		return err
	}
	l.cgroups = !l.o.Unconfined && usableCgroups()
	for _, node := range l.nodes {
		if err := os.MkdirAll(l.path("spool/"+node), 0o755); err != nil {
			return err
		}
	}
	if !l.o.NoPlugin {
		if err := l.installHooks(ctx); err != nil {
			return err
		}
	}
	if err := l.configure(); err != nil {
		return err
	}
	return l.startDaemons(ctx)
}

func (l *Lab) agentConfig() string { return l.o.Agent }

// hostDir is the directory of the agent's lab, "" without one.
func (l *Lab) hostDir() string {
	if l.host == nil {
		return ""
	}
	return l.host.Dir
}

func (p *programs) path(name string) string { return filepath.Join(p.dir, name) }

// installHooks compiles the plug-in against the headers of the Slurm that will load it.
func (l *Lab) installHooks(ctx context.Context) error {
	run := program.Run(program.Start)
	if l.root != nil {
		run = l.root.run
	}
	if err := copyFile(l.host.Binary, l.wrapper()); err != nil || l.o.OCI {
		return err
	}
	if err := os.WriteFile(l.path("etc/catalogue"), []byte("image micro\n"), 0o644); err != nil {
		return err
	}
	if err := setup.Compile(ctx, run, "/", l.include(), l.path("plugin/"+setup.PluginName)); err != nil {
		return err
	}
	return copyFile(l.path("plugin/"+setup.PluginName), l.path("submit/"+setup.PluginName))
}

func (l *Lab) include() string {
	if l.root != nil {
		return filepath.Join(l.o.Root, "usr/include")
	}
	return ""
}

// ports are those of one lab; others are free to take the next ones.
type ports struct {
	base int
	held net.Listener // an abstract socket: it goes with us, whatever ends us
}

func (p ports) ctld() int           { return p.base }
func (p ports) dbd() int            { return p.base + 1 }
func (p ports) sql() int            { return p.base + 2 }
func (p ports) slurmd(node int) int { return p.base + 3 + node }

const mostNodes = 7 // ports of a lab end with the next one's

func choosePorts() (ports, error) {
	for base := 17000; base < 18000; base += 10 {
		held, err := net.Listen("unix", fmt.Sprintf("@grange-slurmlab-%d", base))
		if err != nil {
			continue // another lab's
		}
		free := true
		for port := base; port < base+10 && free; port++ {
			probe, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
			if free = err == nil; free {
				probe.Close()
			}
		}
		if free {
			return ports{base, held}, nil
		}
		held.Close()
	}
	return ports{}, errors.New("no free ports between 17000 and 18000")
}

// daemons are those that a lab started.
type daemons struct {
	*programs

	mu      sync.Mutex
	started []*daemon // in the order of their start
}

// daemon is a program that this lab started.
type daemon struct {
	name  string
	cmd   *exec.Cmd
	ended chan struct{}
}

// launch starts a daemon in the foreground: nobody else can be taken for it.
func (a *daemons) launch(name string, cmd *exec.Cmd) error {
	log, err := os.OpenFile(a.path("log/"+name+".out"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true // a signal to the test's terminal is not theirs
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	d := &daemon{name, cmd, make(chan struct{})}
	go func() {
		cmd.Wait()
		close(d.ended)
	}()
	a.mu.Lock()
	a.started = append(a.started, d)
	a.mu.Unlock()
	return nil
}

func (a *daemons) daemon(name string) *daemon {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := len(a.started) - 1; i >= 0; i-- {
		if a.started[i].name == name {
			return a.started[i]
		}
	}
	return nil
}

// stop ends a daemon and waits for it.
func (d *daemon) stop(timeout time.Duration) {
	d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.ended:
	case <-time.After(timeout):
		d.cmd.Process.Kill()
		<-d.ended
	}
}

// SignalDaemon sends a daemon a signal, as STOP, with which it answers nobody until CONT.
func (a *daemons) SignalDaemon(name string, sig syscall.Signal) error {
	d := a.daemon(name)
	if d == nil {
		return fmt.Errorf("no %s was started", name)
	}
	return d.cmd.Process.Signal(sig)
}

// KillDaemon ends a daemon (munged, slurmctld, slurmd, slurmdbd, mariadbd) as a crash would.
func (a *daemons) KillDaemon(name string) error {
	d := a.daemon(name)
	if d == nil {
		return fmt.Errorf("no %s was started", name)
	}
	d.cmd.Process.Kill()
	<-d.ended
	return nil
}

// StartSlurmd starts the first node's daemon, also again after it was killed.
func (l *Lab) StartSlurmd(ctx context.Context) error { return l.startSlurmd(ctx, 0) }

func (l *Lab) startSlurmd(ctx context.Context, node int) error {
	name := "slurmd"
	if node > 0 {
		name += "-" + l.nodes[node]
	}
	argv := []string{"slurmd", "-D", "-N", l.nodes[node]}
	if l.o.Su != "" {
		argv = append([]string{"unshare", "--mount", "--propagation", "slave", "sh", "-c",
			`mount --bind "$0" /usr/bin/su && exec "$@"`, l.o.Su}, argv...)
	}
	return l.launch(name, l.tool(context.WithoutCancel(ctx), argv[0], argv[1:]...))
}

// StartSlurmctld starts the controller, also again after it was killed.
func (l *Lab) StartSlurmctld(ctx context.Context) error {
	return l.launch("slurmctld", l.tool(context.WithoutCancel(ctx), "slurmctld", "-D"))
}

func (l *Lab) startDaemons(ctx context.Context) error {
	key := make([]byte, 1024)
	if random, err := os.Open("/dev/urandom"); err != nil {
		return err
	} else if _, err := random.Read(key); err != nil {
		return err
	} else {
		random.Close()
	}
	if err := os.WriteFile(l.path("munge/munge.key"), key, 0o400); err != nil {
		return err
	}
	munged := l.tool(context.WithoutCancel(ctx), "munged", "--foreground", "--key-file="+l.path("munge/munge.key"),
		"--socket="+l.path("munge/munge.socket"), "--pid-file="+l.path("munge/munged.pid"),
		"--log-file="+l.path("munge/munged.log"), "--seed-file="+l.path("munge/munged.seed"))
	if err := l.launch("munged", munged); err != nil {
		return err
	}
	if err := l.await(ctx, "munged", func() bool { return exists(l.path("munge/munge.socket")) }); err != nil {
		return err
	}
	if l.o.Accounting {
		if err := l.startAccounting(ctx); err != nil {
			return err
		}
	}
	if err := l.StartSlurmctld(ctx); err != nil {
		return err
	}
	for node := range l.nodes {
		if err := l.startSlurmd(ctx, node); err != nil {
			return err
		}
	}
	return l.await(ctx, "slurmd", func() bool {
		out, err := l.Slurm(ctx, "root", "sinfo", "-h", "-o", "%T")
		return err == nil && strings.TrimSpace(out) == "idle"
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// await waits until a daemon has come as far as it must.
func (a *daemons) await(ctx context.Context, name string, there func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	d := a.daemon(name)
	for !there() {
		select {
		case <-d.ended:
			return fmt.Errorf("%s ended:\n%s", name, a.Log(name))
		case <-ctx.Done():
			return fmt.Errorf("%s does not come up:\n%s", name, a.Log(name))
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// Log is the end of what a daemon logged.
func (a *daemons) Log(name string) string {
	var all strings.Builder
	for _, file := range []string{"log/" + name + ".log", "log/" + name + ".out", "munge/" + name + ".log"} {
		text, err := os.ReadFile(a.path(file))
		if err != nil {
			continue
		}
		const most = 6000
		if len(text) > most {
			text = text[len(text)-most:]
		}
		all.Write(text)
	}
	return all.String()
}

// ended is slurmctld's word of a job's end, with its time.
var ended = regexp.MustCompile(`(?m)^\[(\S+)\] _job_complete: JobId=.* done$`)

// Ended are the times at which jobs ended, in slurmctld's log.
func (l *Lab) Ended() ([]time.Time, error) {
	text, err := os.ReadFile(l.path("log/slurmctld.log"))
	if err != nil {
		return nil, err
	}
	var times []time.Time
	for _, line := range ended.FindAllSubmatch(text, -1) {
		at, err := time.Parse("2006-01-02T15:04:05.000", string(line[1]))
		if err != nil {
			return nil, err
		}
		times = append(times, at)
	}
	return times, nil
}

// Logs is what slurmctld and slurmd said of a job, and the agent's last words, which are of all jobs.
func (l *Lab) Logs(id string) string {
	const most = 40 // lines of each
	about := regexp.MustCompile(`\b(JobId=|[Jj]ob |\[)` + regexp.QuoteMeta(id) + `\b`)
	var all strings.Builder
	part := func(name, text string, which func(line string) bool) {
		var lines []string
		for line := range strings.Lines(text) {
			if which(line) {
				lines = append(lines, line)
			}
		}
		fmt.Fprintf(&all, "%s:\n%s", name, strings.Join(lines[max(len(lines)-most, 0):], ""))
	}
	dir := l.path("log")
	if l.installed {
		dir = "/var/log/slurm"
	}
	for _, name := range []string{"slurmctld", "slurmd"} {
		text, _ := os.ReadFile(filepath.Join(dir, name+".log"))
		part(name, string(text), about.MatchString)
	}
	if l.host != nil {
		part("agent", l.host.AgentLog(), func(string) bool { return true })
	}
	return all.String()
}

// Close ends everything, and leaves nothing behind.
func (l *Lab) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if l.installed || l.daemon("slurmctld") != nil {
		l.Slurm(ctx, "root", "scancel", "--signal=KILL", "--user="+User)
		l.Slurm(ctx, "root", "scancel", "--user="+User)
		l.awaitEmpty(ctx)
	}
	l.endJobs()
	if l.installed {
		return os.RemoveAll(l.dir)
	}
	l.daemons.mu.Lock()
	daemons := l.started
	l.daemons.mu.Unlock()
	for i := len(daemons) - 1; i >= 0; i-- {
		daemons[i].stop(10 * time.Second)
	}
	var errs []error
	if l.host != nil {
		l.killLeft()
		l.removeCgroups()
		l.root.leave()
		errs = append(errs, l.host.Close())
	} else if l.dir != "" {
		l.killLeft()
		l.removeCgroups()
		l.root.leave()
		errs = append(errs, lab.RemoveAll(l.dir))
	}
	if l.ports.held != nil {
		l.ports.held.Close()
	}
	return errors.Join(errs...)
}

// awaitEmpty waits until nothing is in the queue, or Slurm does not answer.
func (l *Lab) awaitEmpty(ctx context.Context) {
	for {
		if out, err := l.Slurm(ctx, "root", "squeue", "-h"); err != nil || strings.TrimSpace(out) == "" {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// killLeft ends step daemons of this node that outlived slurmd: they name the node or our directory.
func (l *Lab) killLeft() {
	paths, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, path := range paths {
		exe, err := os.Readlink(path)
		if err != nil || filepath.Base(exe) != "slurmstepd" {
			continue
		}
		environ, err := os.ReadFile(filepath.Join(filepath.Dir(path), "environ"))
		if err != nil || !strings.Contains(string(environ), l.dir+"/") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
