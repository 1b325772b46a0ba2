// Package lab runs a whole host for tests and measurements: a private libvirtd, an agent and the micro image, in a
// directory of its own. Several labs can run beside each other and beside a system libvirtd. It needs root and the
// packages that scripts/install-packages installs.
package lab

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper/libvirt/libvirttest"
	"github.com/grange-project/grange/internal/rawqemu"
	"github.com/grange-project/grange/internal/vmimage"
)

// Lab is one host.
type Lab struct {
	Dir    string
	Binary string // the grange program; another one counts from the next StartAgent on
	Socket string
	Client *api.Client
	Config string // path of the agent's configuration
	// SlurmNodes are the names of slurmds whose jobs are this host's: there may be others' on the machine.
	SlurmNodes []string
	Proxy      *libvirttest.Proxy // between the agent and libvirtd; nil: there is none

	installed bool   // this machine's own: see Installed
	root      string // of the source tree
	network   string // of libvirtd; "": ours
	inside    bool   // the agent, too
	proxied   bool
	mounted   bool     // the agent's state is a file system of its own
	within    []string // what runs the agent
	agent     *exec.Cmd
	ended     chan struct{} // closed when agent has been waited for
	log       *os.File
}

// Options change a lab.
type Options struct {
	Config  string // TOML appended to the agent's configuration
	NoImage bool   // do not build the micro image
	Image   string // a directory of Export, whose image is imported; "": the micro image is built
	Parent  string // where the lab's directory is made, for who cannot use one below /tmp; "": /tmp
	// Network is the path of a network namespace that libvirtd runs in, as /run/netns/NAME: there its bridges are. "":
	// the host's own.
	Network string
	// Inside lets the agent run in Network as well, with a machine ID of its own: a host by itself, as far as a server
	// can tell.
	Inside bool
	// Within is a command that runs the agent, whose words are put behind its own: unshare, for a host with files of
	// its own.
	Within []string
	// SlurmNodes are those of the Lab, for an agent that is to know them from its start.
	SlurmNodes []string
	// Programs is a directory with grange and grange-guest; "": they are built.
	Programs string
	// Proxy puts one between the agent and libvirtd: Lab.Proxy.
	Proxy bool
	// StateSize gives the agent's state a file system of its own, of that size in the words of tmpfs: "600M". "": the
	// host's.
	StateSize string
	// Source is the tree whose scripts start libvirtd; "": the one that this program was built from.
	Source string
}

// Accelerator is what VMs of labs run on: $GRANGE_TEST_ACCELERATOR, or software emulation, which works everywhere.
func Accelerator() string { return string(libvirttest.Accelerator()) }

// Start builds the programs and brings a host up.
func Start(ctx context.Context, o Options) (*Lab, error) {
	if os.Getuid() != 0 {
		return nil, errors.New("a lab needs root: it runs libvirtd and an agent")
	}
	dir, err := os.MkdirTemp(cmp.Or(o.Parent, "/tmp"), "gl") // short: unix sockets lie below it
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // QEMU does not run as root
		return nil, err
	}
	l := &Lab{Dir: dir, root: cmp.Or(o.Source, Source()), Binary: filepath.Join(dir, "bin", "grange"),
		Socket: filepath.Join(dir, "agent.sock")}
	l.Client, l.network, l.inside, l.within, l.SlurmNodes = api.NewClient(
		l.Socket), o.Network, o.Inside, o.Within, o.SlurmNodes
	if err := l.start(ctx, o); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Lab) start(ctx context.Context, o Options) error {
	if err := l.programs(ctx, o.Programs); err != nil {
		return err
	}
	l.Config = filepath.Join(l.Dir, "agent.toml")
	l.proxied = o.Proxy
	if err := l.Configure(o.Config); err != nil {
		return err
	}
	if err := l.mountState(o.StateSize); err != nil {
		return err
	}
	if err := l.StartLibvirtd(ctx); err != nil {
		return err
	}
	var err error
	if o.Proxy {
		if l.Proxy, err = libvirttest.NewProxy(l.libvirtSocket(), l.path("lv/run/libvirt-sock")); err != nil {
			return err
		}
	}
	if l.log, err = os.OpenFile(l.path("agent.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return err
	}
	if err := l.StartAgent(ctx); err != nil {
		return err
	}
	if o.NoImage {
		return nil
	}
	if o.Image != "" {
		return l.importImage(ctx, o.Image, "--name", vmimage.MicroName)
	}
	_, err = l.Client.MakeImage(ctx, api.ImageRequest{Name: "micro"}, func(string) {})
	return err
}

func (l *Lab) path(name string) string { return filepath.Join(l.Dir, name) }

// programs builds both programs, or links those that are built.
func (l *Lab) programs(ctx context.Context, built string) error {
	if built == "" {
		return Build(ctx, l.path("bin"))
	}
	return os.Symlink(built, l.path("bin"))
}

// Build compiles both programs of this tree as a release is: static.
func Build(ctx context.Context, dir string) error { return BuildFrom(ctx, Source(), dir) }

// BuildGuest386 compiles grange-guest for guests of 32 bits.
func BuildGuest386(ctx context.Context, file string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", file, "./cmd/grange-guest")
	cmd.Dir = Source()
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=386")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build grange-guest for 386: %w\n%s", err, out)
	}
	return nil
}

// Source is the tree that this program was built from.
func Source() string {
	_, source, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(source)))
}

// BuildFrom is Build for another tree, with flags added to those of `go build`.
func BuildFrom(ctx context.Context, source, dir string, flags ...string) error {
	for _, program := range []string{"grange", "grange-guest"} {
		words := append([]string{"build", "-trimpath", "-ldflags", linkFlags(source)}, flags...)
		cmd := exec.CommandContext(ctx, "go", append(words, "-o", filepath.Join(dir, program), "./cmd/"+program)...)
		cmd.Dir = source
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", program, err, out)
		}
	}
	return nil
}

// linkFlags returns the linker's flags, as the Makefile of the tree has them.
func linkFlags(source string) string {
	if _, err := os.Stat(filepath.Join(source, "internal", "inherited", "early", "entry_amd64.s")); err != nil {
		return "-s -w" // an older tree
	}
	return "-s -w -E=github.com/grange-project/grange/internal/inherited/early.entry"
}

// Configure writes the agent's configuration: the lab's own paths and what extra says. SIGHUP or a restart makes it
// count.
func (l *Lab) Configure(extra string) error {
	text := fmt.Sprintf("slurm_nodes = %s\nsocket = %q\nstate_dir = %q\nrun_dir = %q\nlibvirt = %q\n"+
		"libvirt_logs = %q\naccelerator = %q\n%s\n", Strings(l.SlurmNodes), l.Socket, l.path("state"), l.path("run"),
		l.libvirtSocket(), l.path("lv/log/qemu"), Accelerator(), extra)
	return os.WriteFile(l.Config, []byte(text), 0o644)
}

// Strings is a list of strings in TOML.
func Strings(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = strconv.Quote(v)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// libvirtSocket is where the agent finds libvirt. libvirt's other files are beside it.
func (l *Lab) libvirtSocket() string {
	if l.proxied {
		return l.path("lv/run/proxy-sock")
	}
	return l.path("lv/run/libvirt-sock")
}

func (l *Lab) mountState(size string) error {
	if size == "" {
		return nil
	}
	if err := os.Mkdir(l.path("state"), 0o755); err != nil {
		return err
	}
	err := syscall.Mount("tmpfs", l.path("state"), "tmpfs", 0, "mode=755,size="+size)
	l.mounted = err == nil
	return err
}

// StartLibvirtd starts the lab's libvirtd, also after it was killed.
func (l *Lab) StartLibvirtd(ctx context.Context) error {
	if l.installed {
		return startUnits(ctx, libvirtUnits)
	}
	return l.libvirtd(ctx, libvirttest.Up(l.path("lv"))...)
}

// libvirtd runs scripts/private-libvirtd.
func (l *Lab) libvirtd(ctx context.Context, args ...string) error {
	argv := append([]string{filepath.Join(l.root, "scripts", "private-libvirtd")}, args...)
	if l.network != "" {
		argv = append([]string{"/usr/bin/nsenter", "--net=" + l.network, "--"}, argv...)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	// The daemon outlives the script: it must not inherit a pipe that somebody waits for.
	log, err := os.OpenFile(l.path("libvirtd.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("libvirtd %s: %w\n%s", args[0], err, text)
	}
	return nil
}

// KillLibvirtd kills the lab's libvirtd as a crash would.
func (l *Lab) KillLibvirtd() error {
	if l.installed {
		return stopUnits(libvirtUnits)
	}
	return l.SignalLibvirtd(syscall.SIGKILL)
}

// SignalLibvirtd sends the lab's libvirtd a signal: SIGSTOP has it hang until SIGCONT.
func (l *Lab) SignalLibvirtd(s syscall.Signal) error {
	text, err := os.ReadFile(l.path("lv/libvirtd.pid"))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	return syscall.Kill(pid, s)
}

// StartAgent starts the agent and waits until it answers.
func (l *Lab) StartAgent(ctx context.Context) error {
	if l.installed {
		return startUnits(ctx, agentUnit)
	}
	argv, err := l.enter(l.Binary, "agent", "--config", l.Config)
	if err != nil {
		return err
	}
	l.agent = exec.Command(argv[0], argv[1:]...)
	l.agent.Stdout, l.agent.Stderr = l.log, l.log
	if err := l.agent.Start(); err != nil {
		return err
	}
	l.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		cmd.Wait()
		close(ended)
	}(l.agent, l.ended)
	return l.awaitAgent(ctx)
}

// enter is argv as it runs where the agent does. Everything on the way is replaced by exec: signals reach the program
// itself.
func (l *Lab) enter(argv ...string) ([]string, error) {
	argv = append(slices.Clone(l.within), argv...)
	if !l.inside {
		return argv, nil
	}
	id := l.path("machine-id")
	if _, err := os.Stat(id); errors.Is(err, os.ErrNotExist) {
		if err := os.WriteFile(id, []byte(strings.ReplaceAll(api.NewID(), "-", "")+"\n"), 0o444); err != nil {
			return nil, err
		}
	}
	return append([]string{"/usr/bin/nsenter", "--net=" + l.network, "--", "/usr/bin/unshare", "--mount",
		"--propagation", "slave",
		"/bin/sh", "-c", `mount --bind "$0" /etc/machine-id && exec "$@"`, id}, argv...), nil
}

// Inside is a command of the lab's program where the agent runs.
func (l *Lab) Inside(ctx context.Context, args ...string) (*exec.Cmd, error) {
	argv, err := l.enter(append([]string{l.Binary}, args...)...)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "GRANGE_SOCKET="+l.Socket)
	return cmd, nil
}

func (l *Lab) awaitAgent(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		if _, err := l.Client.Host(ctx); err == nil { // what runs on the host may be known later
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-l.ended:
			return fmt.Errorf("the agent ended:\n%s", l.AgentLog())
		case <-ctx.Done():
			return fmt.Errorf("the agent does not answer:\n%s", l.AgentLog())
		}
	}
}

// KillAgent kills the agent as a crash would, and waits for its end.
func (l *Lab) KillAgent() {
	if l.installed {
		stopUnits(agentUnit)
		return
	}
	l.SignalAgent(syscall.SIGKILL)
	<-l.ended
}

// StopAgent ends the agent in order, as for an upgrade.
func (l *Lab) StopAgent() { l.SignalAgent(syscall.SIGTERM); <-l.ended }

// SignalAgent sends the agent a signal.
func (l *Lab) SignalAgent(s syscall.Signal) { l.agent.Process.Signal(s) }

// AgentPID is the agent's process.
func (l *Lab) AgentPID() int {
	if l.installed {
		return unitPID(agentUnit)
	}
	return l.agent.Process.Pid
}

// AgentLog is all that agents of this lab logged.
func (l *Lab) AgentLog() string {
	if l.installed {
		return unitLog(agentUnit)
	}
	text, _ := os.ReadFile(l.path("agent.log"))
	return string(text)
}

// Grange is a command of the lab's program, told of the lab's agent.
func (l *Lab) Grange(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, l.Binary, args...)
	cmd.Env = append(os.Environ(), "GRANGE_SOCKET="+l.Socket)
	return cmd
}

// Exec is `grange exec` with the given arguments.
func (l *Lab) Exec(ctx context.Context, args ...string) *exec.Cmd {
	return l.Grange(ctx, append([]string{"exec"}, args...)...)
}

// Leaks returns what is left on the host although no job runs: processes, domains, files, ledger entries. It gives the
// agent a moment, for a killed caller's VM ends a little later.
func (l *Lab) Leaks(ctx context.Context) []string {
	const timeout = time.Minute // ends with the last leak
	for deadline := time.Now().Add(timeout); ; time.Sleep(50 * time.Millisecond) {
		left := l.leaksNow(ctx)
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

func (l *Lab) leaksNow(ctx context.Context) []string {
	var left []string
	for _, pid := range l.QEMUs() {
		left = append(left, fmt.Sprintf("process: QEMU %d", pid))
	}
	dirs := []string{l.path("run/vm"), l.path("state/vm")}
	if l.installed {
		dirs = []string{"/run/grange/vm", "/var/lib/grange/vm"}
	}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			left = append(left, err.Error())
		}
		for _, e := range entries {
			left = append(left, "file: "+dir+"/"+e.Name())
		}
	}
	h, err := l.Client.Host(ctx)
	if err != nil {
		return append(left, "agent: "+err.Error())
	}
	for cpu, name := range h.Holders {
		left = append(left, fmt.Sprintf("ledger: CPU %s held by %s", cpu, name))
	}
	if h.VMs+h.Waiting > 0 {
		left = append(left, fmt.Sprintf("ledger: %d VMs, %d waiting", h.VMs, h.Waiting))
	}
	domains, err := l.Virsh(ctx, "list", "--all", "--name")
	if err != nil {
		left = append(left, "libvirtd: "+err.Error())
	}
	for _, name := range strings.Fields(domains) {
		left = append(left, "domain: "+name)
	}
	return left
}

// Virsh runs virsh against the lab's libvirtd.
func (l *Lab) Virsh(ctx context.Context, args ...string) (string, error) {
	uri := "qemu:///system"
	if !l.installed {
		uri += "?socket=" + l.path("lv/run/libvirt-sock")
	}
	cmd := exec.CommandContext(ctx, "virsh", append([]string{"-q", "-c", uri}, args...)...)
	out, err := cmd.Output()
	return string(out), err
}

// QEMUs are the QEMU processes of this lab.
func (l *Lab) QEMUs() []int {
	var pids []int
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(text, []byte("qemu-system")) || !bytes.Contains(text, []byte(l.Dir+"/")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Close ends everything and removes the lab's directory.
func (l *Lab) Close() error {
	if l.agent != nil && l.agent.Process != nil {
		l.SignalAgent(syscall.SIGTERM)
		<-l.ended
	}
	for _, pid := range l.QEMUs() {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if l.Proxy != nil {
		l.Proxy.Close()
	}
	err := l.libvirtd(ctx, "down", "--all", l.path("lv"))
	if l.mounted {
		err = errors.Join(err, syscall.Unmount(l.path("state"), 0))
	}
	if l.log != nil {
		l.log.Close()
	}
	return errors.Join(err, RemoveAll(l.Dir))
}

// RawGuest is the lab's micro image, for those who boot it without an agent.
func (l *Lab) RawGuest() (rawqemu.Guest, error) {
	store, err := vmimage.Open(l.path("state/images"))
	if err != nil {
		return rawqemu.Guest{}, err
	}
	defer store.Close()
	i, err := store.Get(vmimage.MicroName)
	return rawqemu.Guest{Kernel: i.Kernel(), Initrd: i.Initrd(), Cmdline: i.Cmdline, Memory: farm.GiB,
		KVM: Accelerator() == "kvm"}, err
}

// Machine is one VM that runs: its QEMU process, and the name of its domain.
type Machine struct {
	PID  int
	Name string
}

// Machines are the VMs whose QEMU runs, from the processes' own command lines.
func (l *Lab) Machines() []Machine {
	var all []Machine
	for _, pid := range l.QEMUs() {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		for word := range bytes.SplitSeq(text, []byte{0}) {
			if rest, ok := bytes.CutPrefix(word, []byte("guest=")); ok {
				name, _, _ := bytes.Cut(rest, []byte{','})
				all = append(all, Machine{pid, string(name)})
			}
		}
	}
	return all
}
