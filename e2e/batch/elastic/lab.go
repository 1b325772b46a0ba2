package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/internal/batch/slurm/worker"
	"github.com/grange-project/grange/internal/deathsig"
)

// What the lab's cluster is. The bridge is in a namespace of its own, so two labs may have the same addresses.
const (
	controllerIP   = "10.102.0.1"
	controllerPort = 18817
	daemonPort     = 18818
	hostCount      = 2
	nodesOfHost    = 2 // as many as two CPUs have room for
	nodeCount      = hostCount * nodesOfHost
	nodeMemory     = "448M"
	bootTimeout    = 3 * time.Minute
)

// elastic is a Slurm of its own on a bridge in a network namespace, with hosts whose VMs are its nodes. Each host has a
// namespace and a bridge, too, and a cable to the controller's.
type elastic struct {
	hosts  []*lab.Lab
	dir    string
	ns     string // name of the controller's namespace; those of hosts have a number behind it
	slurm  worker.Scontrol
	daemon map[string]*exec.Cmd // munged, slurmctld, watch
}

func startElastic(ctx context.Context) (e *elastic, err error) {
	e = &elastic{ns: fmt.Sprintf("grange-el%d", os.Getpid()), daemon: map[string]*exec.Cmd{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	if e.dir, err = os.MkdirTemp("/tmp", "gel"); err != nil {
		return e, err
	}
	if err := os.Chmod(e.dir, 0o755); err != nil {
		return e, err
	}
	if err := e.network(ctx); err != nil {
		return e, err
	}
	if err := e.munge(); err != nil {
		return e, err
	}
	if err := e.hold(ctx); err != nil {
		return e, err
	}
	for n := range hostCount {
		h, err := lab.Start(ctx, lab.Options{NoImage: true, Network: "/run/netns/" + e.hostNS(n), Inside: true,
			Config: e.agentConfig(n)})
		if err != nil {
			return e, err
		}
		e.hosts = append(e.hosts, h)
	}
	progress("building the worker image")
	if err := e.build(ctx, "worker", "worker", "--site"); err != nil {
		return e, err
	}
	return e, e.cluster(ctx)
}

// build builds an image by words of `grange image build`, on a host that is none of the cluster's, for those reach no
// mirror of Debian, and takes it to all of them.
func (e *elastic) build(ctx context.Context, name string, words ...string) (err error) {
	builder, err := lab.Start(ctx, lab.Options{NoImage: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, builder.Close()) }()
	out, err := builder.Grange(ctx, append([]string{"image", "build"}, words...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("image build %s: %w\n%s", name, err, out)
	}
	return builder.Share(ctx, name, e.hosts...)
}

func (e *elastic) hostNS(n int) string { return fmt.Sprintf("%s-%d", e.ns, n) }

func (e *elastic) path(name string) string { return filepath.Join(e.dir, name) }

// inside runs a program in the lab's network, where /run/munge is the lab's own: guests get slurm.conf from there, and
// their munged listens where Slurm looks for it by default.
func (e *elastic) inside(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/usr/bin/nsenter", append(e.enter(), argv...)...)
	cmd.Env = append(os.Environ(), "SLURM_CONF="+e.path("slurm.conf"))
	return cmd
}

func (e *elastic) enter() []string {
	pid := e.daemon["holder"].Process.Pid
	return []string{fmt.Sprintf("--net=/proc/%d/ns/net", pid), fmt.Sprintf("--mount=/proc/%d/ns/mnt", pid), "--"}
}

// hold starts a process that has the lab's namespaces.
func (e *elastic) hold(ctx context.Context) error {
	if err := os.MkdirAll("/run/munge", 0o755); err != nil { // to mount over
		return err
	}
	if err := e.start("holder", exec.Command("/usr/bin/nsenter", "--net=/run/netns/"+e.ns, "--", "/usr/bin/unshare",
		"--mount", "--propagation", "slave",
		"/bin/sh", "-c", `mount --bind "$0/munge" /run/munge && touch "$0/held" && exec sleep infinity`,
		e.dir)); err != nil {
		return err
	}
	return e.await(ctx, "namespaces", func() (bool, error) {
		_, err := os.Stat(e.path("held"))
		return err == nil, nil
	})
}

func (e *elastic) network(ctx context.Context) error {
	steps := []string{"ip netns add NS", "ip -n NS link set lo up", "ip -n NS link add br0 type bridge",
		"ip -n NS addr add " + controllerIP + "/24 dev br0", "ip -n NS link set br0 up"}
	for n := range hostCount {
		host, cable := e.hostNS(n), fmt.Sprintf("host%d", n)
		for _, words := range []string{"ip netns add HOST", "ip -n HOST link set lo up",
			"ip -n HOST link add br0 type bridge", "ip -n HOST link set br0 up",
			"ip -n NS link add CABLE type veth peer name up0 netns HOST", "ip -n NS link set CABLE master br0 up",
			"ip -n HOST link set up0 master br0 up"} {
			steps = append(steps, strings.NewReplacer("HOST", host, "CABLE", cable).Replace(words))
		}
	}
	for _, words := range steps {
		argv := strings.Fields(strings.ReplaceAll(words, "NS", e.ns))
		if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", words, err, out)
		}
	}
	return nil
}

// munge starts a munged with a key of the lab's own. The key's file is for root alone, as a real one.
func (e *elastic) munge() error {
	if err := os.Mkdir(e.path("munge"), 0o755); err != nil {
		return err
	}
	key := make([]byte, 1024)
	rand.Read(key)
	if err := os.WriteFile(e.path("munge/key"), key, 0o400); err != nil {
		return err
	}
	return e.start("munged", exec.Command("/usr/sbin/munged", "--foreground", "--key-file="+e.path("munge/key"),
		"--socket="+e.path("munge/munge.socket.2"), "--pid-file="+e.path("munge/pid"),
		"--log-file="+e.path("munge/log"), "--seed-file="+e.path("munge/seed")))
}

func (e *elastic) agentConfig(n int) string {
	return fmt.Sprintf(`
reserved_memory = "256M"
[shapes.node]
cpus = 1
memory = %q
[worker]
controller = "%s:%d"
munge_key = %q
network = "bridge:br0"
addresses = "10.102.0.%d-10.102.0.%d/24"
image = "worker"
shape = "node"
`, nodeMemory, controllerIP, controllerPort, e.path("munge/key"), 20+20*n, 39+20*n)
}

// start runs a daemon whose output goes to a file.
func (e *elastic) start(name string, cmd *exec.Cmd) error {
	log, err := os.OpenFile(e.path(name+".out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := deathsig.Start(cmd, syscall.SIGKILL); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	e.daemon[name] = cmd
	return nil
}

func (e *elastic) stop(name string) {
	cmd := e.daemon[name]
	if cmd == nil {
		return
	}
	delete(e.daemon, name)
	cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(10*time.Second, func() { cmd.Process.Kill() })
	cmd.Wait()
	kill.Stop()
}

// cluster writes the configuration, the fragment by the product's own word, and starts slurmctld and the watch.
func (e *elastic) cluster(ctx context.Context) error {
	if err := e.workerConfig(0); err != nil {
		return err
	}
	fragment, err := e.hosts[0].Grange(ctx, "worker", "--config", e.path("worker.toml"), "config", "--write",
		"--programs", e.path("programs"), "--nodes", fmt.Sprintf("vwn[1-%d]", nodeCount), "--cpus", "1", "--memory",
		nodeMemory, "--dynamic", "dyn", "--boot-timeout", bootTimeout.String(), "--idle", "1h").Output()
	if err != nil {
		return fmt.Errorf("worker config: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	conf := fmt.Sprintf(`ClusterName=elastic
SlurmctldHost=%s(%s)
SlurmctldPort=%d
SlurmdPort=%d
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation=%s
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=%s
SlurmdPidFile=/run/slurmd.pid
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
JobCompType=jobcomp/filetxt
JobCompLoc=%s
SlurmctldDebug=verbose
DebugFlags=Power
`, host, controllerIP, controllerPort, daemonPort, e.path("state"), e.path("slurmctld.pid"), e.path("jobcomp"))
	if err := os.WriteFile(e.path("slurm.conf"), append([]byte(conf), fragment...), 0o644); err != nil {
		return err
	}
	for _, dir := range []string{"state", "jobs"} {
		if err := os.Mkdir(e.path(dir), 0o777); err != nil {
			return err
		}
	}
	e.slurm = worker.Scontrol{Path: e.path("scontrol"), Conf: e.path("slurm.conf")}
	for _, name := range []string{"scontrol", "squeue"} { // that our own calls, too, are in the namespace
		text := fmt.Sprintf("#!/bin/sh\nexec /usr/bin/nsenter %s /usr/bin/%s \"$@\"\n",
			strings.Join(e.enter(), " "), name)
		if err := os.WriteFile(e.path(name), []byte(text), 0o755); err != nil {
			return err
		}
	}
	if err := e.start("slurmctld", e.inside(context.Background(), "/usr/sbin/slurmctld", "-D", "-f",
		e.path("slurm.conf"))); err != nil {
		return err
	}
	if err := e.await(ctx, "slurmctld", func() (bool, error) {
		nodes, err := e.slurm.Nodes(ctx, "")
		return err == nil && len(nodes) >= nodeCount, nil
	}); err != nil {
		return err
	}
	return e.watch()
}

func (e *elastic) watch() error {
	return e.start("watch", e.inside(context.Background(), e.hosts[0].Binary, "worker", "--config",
		e.path("worker.toml"), "watch"))
}

func (e *elastic) workerConfig(warm int) error {
	text := fmt.Appendf(nil, "slurm_conf = %q\nlog = %q\nboot_timeout = %q\nwarm = %d\n", e.path("slurm.conf"),
		e.path("worker.log"), bootTimeout, warm)
	dynamic := ",dyn*" // on the first
	for n, h := range e.hosts {
		text = fmt.Appendf(text, "[[host]]\nnodes = \"vwn[%d-%d]%s\"\nsocket = %q\n", n*nodesOfHost+1,
			(n+1)*nodesOfHost, dynamic, h.Socket)
		dynamic = ""
	}
	return os.WriteFile(e.path("worker.toml"), text, 0o644)
}

// await looks until done says so.
func (e *elastic) await(ctx context.Context, what string, done func() (bool, error)) error {
	for limit := time.Now().Add(timeout); ; {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		if time.Now().After(limit) {
			return fmt.Errorf("%s: not within %v", what, timeout)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// workers are what the agents have, by name.
func (e *elastic) workers(ctx context.Context) (map[string]api.Worker, error) {
	found := map[string]api.Worker{}
	for _, h := range e.hosts {
		list, err := h.Client.Workers(ctx)
		if err != nil {
			return nil, err
		}
		for _, w := range list {
			found[w.Name] = w
		}
	}
	return found, nil
}

// logs is the end of all that daemons wrote, for whoever wants to know why.
func (e *elastic) logs(to io.Writer) {
	for _, name := range []string{"worker.log", "slurmctld.out", "watch.out", "munged.out"} {
		text, _ := os.ReadFile(e.path(name))
		const most = 8 << 10
		fmt.Fprintf(to, "--- %s\n%s\n", name, text[max(0, len(text)-most):])
	}
	for _, h := range e.hosts {
		text := h.AgentLog()
		fmt.Fprintf(to, "--- agent\n%s\n", text[max(0, len(text)-6<<10):])
	}
}

func (e *elastic) close() error {
	var err error
	for _, name := range []string{"watch", "slurmctld", "munged", "holder"} {
		e.stop(name)
	}
	for _, h := range e.hosts {
		err = errors.Join(err, h.Close())
	}
	for n := range hostCount {
		exec.Command("ip", "netns", "del", e.hostNS(n)).Run() // with its bridge and cable
	}
	exec.Command("ip", "netns", "del", e.ns).Run()
	if left, _ := filepath.Glob("/run/netns/" + e.ns + "*"); len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("namespaces stay: %v", left))
	}
	return errors.Join(err, os.RemoveAll(e.dir))
}
