// Package condorlab runs a whole HTCondor pool on this machine for tests: Debian 13's packages in a tree of their own,
// one machine that is central manager, access point and execution point, in namespaces of its own; with an agent of
// this machine and grange's hooks. It needs root and what scripts/install-packages batch installs.
package condorlab

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/e2e/batch/conform"
	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/internal/batch/htcondor"
	"github.com/grange-project/grange/internal/batch/htcondor/setup"
	"github.com/grange-project/grange/internal/program"
)

// Options change a lab.
type Options struct {
	CPUs      int            // of the pool; 0: those of this machine
	Config    string         // lines behind all others of HTCondor's configuration
	Agent     string         // TOML appended to the agent's configuration
	Binds     []string       // directories of the host that machines and VMs see, besides Home
	Wait      string         // wait_timeout of the agent's configuration; "": 3s
	Shell     string         // commands of the shell that starts the first machine's daemons: ulimit
	NoCgroups bool           // as on a host where HTCondor can use none
	NoGrange  bool           // HTCondor alone
	Metal     htcondor.Metal // which jobs run on the host; "": those that ask
}

// Lab is one pool.
type Lab struct {
	o       Options
	host    *lab.Lab
	root    *root
	second  *root // nil: there is one machine
	debian  string
	key     [64]byte // of the pool: its machines know each other by it
	version string
	site    setup.Site

	mu    sync.Mutex
	jobs  map[string]*job
	count int
}

var _ conform.System = (*Lab)(nil)

const (
	nobody   = 65534
	name     = "ex1"
	address  = "10.104.0.1"
	address2 = "10.104.0.2"
	confDir  = "/etc/condor/config.d"
	timeout  = 3 * time.Minute
)

// Start brings a pool up.
func Start(ctx context.Context, o Options) (*Lab, error) {
	if os.Getuid() != 0 {
		return nil, errors.New("a pool of our own needs root")
	}
	if o.CPUs == 0 {
		o.CPUs = runtime.NumCPU()
	}
	l := &Lab{o: o, jobs: map[string]*job{}}
	if err := l.start(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Lab) start(ctx context.Context) error {
	debian, err := tree(ctx)
	if err != nil {
		return err
	}
	// Not below /tmp: HTCondor gives jobs a /tmp of their own, and the wrapper finds its agent there.
	if l.host, err = lab.Start(ctx, lab.Options{Config: l.o.Agent, Parent: "/var/lib"}); err != nil {
		return err
	}
	if err := os.MkdirAll(l.Home(), 0o755); err != nil {
		return err
	}
	if err := os.Chown(l.Home(), nobody, nobody); err != nil {
		return err
	}
	if err := l.configureAgent(ctx); err != nil {
		return err
	}
	if _, err := rand.Read(l.key[:]); err != nil {
		return err
	}
	l.debian = debian
	if err := l.writeFiles(name, l.pool()); err != nil {
		return err
	}
	if l.root, err = enter(ctx, debian, l.host.Dir, name, address, nil, l.o); err != nil {
		return err
	}
	return l.await(ctx)
}

// Names of the machines, for drivers.
const (
	First  = name
	Second = "ex2"
)

// AddSecond makes another machine that runs jobs.
func (l *Lab) AddSecond(ctx context.Context) error {
	config := strings.NewReplacer("use ROLE: CentralManager\nuse ROLE: Submit\n", "", "NETWORK_INTERFACE = "+address,
		"NETWORK_INTERFACE = "+address2).Replace(l.pool())
	if err := l.writeFiles(Second, config); err != nil {
		return err
	}
	var err error
	if l.second, err = enter(ctx, l.debian, l.host.Dir, Second, address2, l.root, Options{}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		out, err := l.Condor(ctx, "root", "condor_status", "-af", "Machine")
		if err == nil && slices.Contains(strings.Fields(out), Second) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the second machine does not join the pool: %w\n%s", err, logs(l.second))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// configureAgent adds the site's bind, whose path is known only now.
func (l *Lab) configureAgent(ctx context.Context) error {
	if err := l.host.Configure(l.o.Agent + fmt.Sprintf("\n[batch]\nbinds = %s\nrequeues = 2\nwait_timeout = %q\n",
		lab.Strings(append([]string{l.Home()}, l.o.Binds...)), cmp.Or(l.o.Wait, "3s"))); err != nil {
		return err
	}
	l.host.KillAgent()
	return l.host.StartAgent(ctx)
}

// await waits until the pool has a slot, and the slot knows its agent.
func (l *Lab) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	want := "undefined"
	if !l.o.NoGrange {
		want = "true"
	}
	var said string
	for {
		out, err := l.Condor(ctx, "root", "condor_status", "-af", "GrangeReady", "CondorVersion")
		said = out
		if ready, version, ok := strings.Cut(strings.TrimSpace(out), " "); err == nil && ok && ready == want {
			if m := regexp.MustCompile(`CondorVersion: (\S+)`).FindStringSubmatch(version); m != nil {
				l.version = m[1]
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the pool does not come up: %v %s\n%s", err, said, l.Logs())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// writeFiles writes what differs from the Debian tree.
func (l *Lab) writeFiles(machine, pool string) error {
	l.site = setup.Standard()
	l.site.Metal = cmp.Or(l.o.Metal, l.site.Metal)
	l.site.Socket, l.site.Period, l.site.Requeues = l.host.Socket, 2*time.Second, 2
	files := []setup.File{
		{Path: "/etc/hosts", Text: "127.0.0.1 localhost\n" + address + " " + First + "\n" + address2 + " " +
			Second + "\n"},
		{Path: "/etc/condor/passwords.d/POOL", Text: string(l.key[:])},
		{Path: confDir + "/00-minicondor", Text: "# This pool is configured by what follows.\n"},
		{Path: confDir + "/40-lab.conf", Text: pool},
		{Path: confDir + "/90-lab.conf", Text: l.o.Config + "\n"},
	}
	if !l.o.NoGrange {
		files = append(append(files, l.site.ExecuteFiles(confDir)...), l.site.AccessFile(confDir))
	}
	for _, f := range files {
		if err := l.put(machine, f); err != nil {
			return err
		}
	}
	binary, err := os.ReadFile(l.host.Binary)
	if err != nil {
		return err
	}
	return l.put(machine, setup.File{Path: l.site.Grange, Text: string(binary), Program: true})
}

func (l *Lab) put(machine string, f setup.File) error {
	path := filepath.Join(l.host.Dir, machine+".files", f.Path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	mode := os.FileMode(0o644)
	switch {
	case f.Program:
		mode = 0o755
	case strings.HasSuffix(f.Path, "/POOL"):
		mode = 0o600
	}
	return os.WriteFile(path, []byte(f.Text), mode)
}

// pool is a whole pool in one file, with intervals that suit tests.
func (l *Lab) pool() string {
	cgroup := l.cgroup()
	if l.o.NoCgroups {
		cgroup = ""
	}
	return fmt.Sprintf(`use ROLE: CentralManager
use ROLE: Submit
use ROLE: Execute
CONDOR_HOST = %[1]s
NETWORK_INTERFACE = %[1]s
BIND_ALL_INTERFACES = False
ENABLE_KERNEL_TUNING = False
UID_DOMAIN = lab.test
FILESYSTEM_DOMAIN = lab.test
TRUST_UID_DOMAIN = True
TRUST_DOMAIN = lab.test
SEC_DEFAULT_AUTHENTICATION_METHODS = FS, IDTOKENS
ALLOW_DAEMON = condor@lab.test, condor@password
ALLOW_NEGOTIATOR = condor@lab.test, condor@password
ALLOW_ADMINISTRATOR = root@lab.test, condor@lab.test, condor@password
ALLOW_WRITE = *
ALLOW_READ = *
SCHEDD_INTERVAL = 1
SCHEDD_MIN_INTERVAL = 1
NEGOTIATOR_INTERVAL = 1
NEGOTIATOR_MIN_INTERVAL = 1
NEGOTIATOR_CYCLE_DELAY = 0
PERIODIC_EXPR_INTERVAL = 2
UPDATE_INTERVAL = 2
POLLING_INTERVAL = 1
STARTER_UPDATE_INTERVAL = 2
STARTER_INITIAL_UPDATE_INTERVAL = 1
SHADOW_QUEUE_UPDATE_INTERVAL = 2
MachineMaxVacateTime = 8
KILLING_TIMEOUT = 8
RUNBENCHMARKS = 0
JOB_DEFAULT_REQUESTMEMORY = 1000
MODIFY_REQUEST_EXPR_REQUESTMEMORY = max({RequestMemory, 1})
NUM_CPUS = %[2]d
MEMORY = %[3]d
BASE_CGROUP = %[4]s
`, address, l.o.CPUs, 2000*l.o.CPUs, cgroup)
}

// cgroup is the one below which all of this pool's jobs are, named so that two pools have two.
func (l *Lab) cgroup() string { return "grange-" + filepath.Base(l.host.Dir) }

// Condor runs one of HTCondor's programs in the pool and returns what it printed. They hang when a daemon does; this
// does not.
func (l *Lab) Condor(ctx context.Context, user, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	var errs strings.Builder
	cmd := l.root.command(ctx, user, l.Home(), program, args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w: %s%s", program, strings.Join(args, " "), err, out,
			strings.TrimSpace(errs.String()))
	}
	return string(out), nil
}

// UserCommand is a command line on the first machine, which the user runs whose jobs run here.
func (l *Lab) UserCommand(ctx context.Context, argv ...string) *exec.Cmd {
	return l.root.command(ctx, "nobody", l.Home(), argv[0], argv[1:]...)
}

// Run runs HTCondor's commands for a driver, on the first machine.
func (l *Lab) Run() program.Run {
	return func(ctx context.Context, c program.Call) ([]byte, error) {
		ns := fmt.Sprintf("/proc/%d/", l.root.pid)
		c.Args = append([]string{"--target", strconv.Itoa(l.root.pid), "--net", "--uts", "--pid", "--mount",
			"--root=" + ns + "root", "--wdns=/", "/usr/bin/env", c.Path}, c.Args...)
		c.Path = "/usr/bin/nsenter"
		return program.Start(ctx, c)
	}
}

// History is the file in which the access point keeps jobs that have ended, as it is seen from here.
func (l *Lab) History() string { return l.root.path("/var/spool/condor/history") }

// Logs are the ends of what the daemons logged.
func (l *Lab) Logs() string { return logs(l.root) + logs(l.second) }

func logs(r *root) string {
	if r == nil {
		return ""
	}
	var all strings.Builder
	paths, _ := filepath.Glob(r.path("/var/log/condor/*"))
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil || len(text) == 0 || strings.Contains(path, "ProcLog") || strings.Contains(path, "XferStats") {
			continue
		}
		const most = 4000
		if len(text) > most {
			text = text[len(text)-most:]
		}
		fmt.Fprintf(&all, "--- %s\n%s\n", filepath.Base(path), text)
	}
	return all.String()
}

// Close ends everything, and leaves nothing behind.
func (l *Lab) Close() error {
	var errs []error
	if l.root != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		l.Condor(ctx, "root", "condor_rm", "-all") // wrappers end their VMs; the rest goes with the machine
		l.idle(ctx)
		l.second.leave()
		l.root.leave()
	}
	if l.host != nil {
		l.removeCgroups()
		errs = append(errs, l.host.Close())
	}
	return errors.Join(errs...)
}

// removeCgroups removes what HTCondor leaves: it makes its groups, and nobody unmakes the topmost.
func (l *Lab) removeCgroups() {
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		left := 0
		for _, form := range []string{"/sys/fs/cgroup/%s", "/sys/fs/cgroup/*/%s"} {
			dirs, _ := filepath.Glob(fmt.Sprintf(form, l.cgroup()))
			for _, dir := range dirs {
				var all []string
				filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
					if err == nil && d.IsDir() {
						all = append(all, path)
					}
					return nil
				})
				for i := len(all) - 1; i >= 0; i-- {
					if os.Remove(all[i]) != nil {
						left++
					}
				}
			}
		}
		if left == 0 || time.Now().After(deadline) {
			return
		}
	}
}
