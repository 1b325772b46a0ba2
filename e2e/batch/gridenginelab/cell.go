package gridenginelab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/deathsig"
)

// Grid Engine wants hosts with names, and addresses that are not the loopback's: each host of a cell is a network,
// mount and UTS namespace of its own, so that cells do not see each other or the machine's network.
const (
	master      = "sgem"
	subnet      = "10.103.0."
	masterPort  = 19444
	execPort    = 19445
	programs    = "/usr/lib/gridengine" // the real ones: /usr/bin holds wrappers in shell, which cost 0.1 s a call
	shared      = "/usr/share/gridengine"
	admin       = "sgeadmin" // made by Debian's gridengine-common
	commandTime = 90 * time.Second
)

// cell is a private Grid Engine cell: its own root, spools and configuration, on the programs of Debian's packages.
type cell struct {
	dir    string
	socket string // of the agent
	mu     sync.Mutex
	hosts  map[string]*host
}

// host is a namespace that its holder keeps.
type host struct {
	name   string
	holder *exec.Cmd
}

func (c *cell) path(name string) string { return filepath.Join(c.dir, name) }

// addHost makes a namespace host. The first one owns the bridge that the others are plugged into.
func (c *cell) addHost(ctx context.Context, name string, number int) error {
	// The agent is where it is on any host.
	script := `hostname "$1" && mount --bind "$2" /etc/hosts && mount -t tmpfs none /run && mkdir /run/grange && ln -s "$3" /run/grange/agent.sock &&
ip link set lo up && echo ready && exec sleep infinity`
	h := &host{name: name, holder: exec.Command("/usr/bin/unshare", "--net", "--mount", "--uts", "/bin/sh", "-c",
		script, "sh", name, c.path("hosts"), c.socket)}
	h.holder.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := h.holder.StdoutPipe()
	if err != nil {
		return err
	}
	var errOut bytes.Buffer
	h.holder.Stderr = &errOut
	if err := deathsig.Start(h.holder, syscall.SIGKILL); err != nil {
		return err
	}
	c.mu.Lock()
	if c.hosts == nil {
		c.hosts = map[string]*host{}
	}
	c.hosts[name] = h
	c.mu.Unlock()
	if n, err := out.Read(make([]byte, 64)); n == 0 {
		return fmt.Errorf("namespace of %s: %w: %s", name, err, errOut.String())
	}
	address := subnet + strconv.Itoa(number) + "/24"
	if name == master {
		return c.script(ctx, name, `ip link add br0 type bridge && ip addr add "$1" dev br0 && ip link set br0 up`,
			address)
	}
	pid := strconv.Itoa(h.holder.Process.Pid)
	if err := c.script(ctx, master,
		`ip link add "v$2" type veth peer name eth0 netns "$1" && ip link set "v$2" master br0 up`, pid,
		strconv.Itoa(number)); err != nil {
		return err
	}
	return c.script(ctx, name, `ip addr add "$1" dev eth0 && ip link set eth0 up`, address)
}

func (c *cell) script(ctx context.Context, host, text string, args ...string) error {
	_, err := c.run(ctx, host, append([]string{"/bin/sh", "-ec", text, "sh"}, args...)...)
	return err
}

// env is what every program of the cell is told.
func (c *cell) env() []string {
	return []string{"SGE_ROOT=" + c.path("root"), "SGE_CELL=default", fmt.Sprintf("SGE_QMASTER_PORT=%d", masterPort),
		fmt.Sprintf("SGE_EXECD_PORT=%d", execPort), "PATH=" + programs + ":/usr/sbin:/usr/bin:/sbin:/bin",
		"LANG=C.UTF-8", "HOME=/"}
}

// command is a program on one of the cell's hosts.
func (c *cell) command(ctx context.Context, host string, argv ...string) *exec.Cmd {
	c.mu.Lock()
	h := c.hosts[host]
	c.mu.Unlock()
	ns := fmt.Sprintf("/proc/%d/ns/", h.holder.Process.Pid)
	cmd := exec.CommandContext(ctx, "/usr/bin/nsenter",
		append([]string{"--net=" + ns + "net", "--mount=" + ns + "mnt", "--uts=" + ns + "uts", "--"}, argv...)...)
	cmd.Env = c.env()
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second // daemons keep a pipe open
	return cmd
}

// run runs a program to its end. What it says on standard errors is in the error.
func (c *cell) run(ctx context.Context, host string, argv ...string) (string, error) {
	return c.runWith(ctx, host, nil, argv...)
}

func (c *cell) runWith(ctx context.Context, host string, env []string, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	cmd := c.command(ctx, host, argv...)
	cmd.Env = append(cmd.Env, env...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return out.String(), fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err,
			strings.TrimSpace(errOut.String()+" "+out.String()))
	}
	return out.String(), nil
}

func (c *cell) qconf(ctx context.Context, args ...string) (string, error) {
	return c.run(ctx, master, append([]string{programs + "/qconf"}, args...)...)
}

// start makes the cell's files and starts its master, on a host that is made already.
func (c *cell) start(ctx context.Context) error {
	if err := c.files(); err != nil {
		return err
	}
	init := `cd /
U=` + programs + `
$U/spoolinit classic libspoolc "$1" init
$U/spooldefaults configuration "$2"
$U/spooldefaults complexes ` + shared + `/util/resources/centry
$U/spooldefaults usersets ` + shared + `/util/resources/usersets
$U/spooldefaults managers ` + admin + ` root
`
	// One call names all managers: another one would replace them.
	if _, err := c.run(ctx, master, "/usr/bin/setpriv", "--reuid", admin, "--regid", admin, "--clear-groups", "/bin/sh",
		"-ec", init, "sh", c.spooling(), c.path("global")); err != nil {
		return err
	}
	if _, err := c.run(ctx, master, programs+"/sge_qmaster"); err != nil {
		return err
	}
	if err := c.await(ctx, "qmaster", func() bool {
		_, err := c.qconf(ctx, "-sh")
		return err == nil
	}); err != nil {
		return err
	}
	if err := c.queues(ctx); err != nil {
		return err
	}
	return c.startExecd(ctx, master)
}

func (c *cell) startExecd(ctx context.Context, host string) error {
	if _, err := c.run(ctx, host, programs+"/sge_execd"); err != nil {
		return err
	}
	return c.await(ctx, "sge_execd of "+host, func() bool {
		out, err := c.run(ctx, master, programs+"/qhost", "-h", host)
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); len(f) > 6 && f[0] == host {
				return err == nil && f[6] != "-" // its load: it has reported
			}
		}
		return false
	})
}

func (c *cell) await(ctx context.Context, what string, ready func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for !ready() {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer; %s", what, c.messages())
		}
	}
	return nil
}

// messages are the ends of the daemons' logs.
func (c *cell) messages() string {
	var all strings.Builder
	paths, _ := filepath.Glob(c.path("spool/*/messages"))
	more, _ := filepath.Glob(c.path("spool/execd/*/messages"))
	for _, p := range append(paths, more...) {
		text, _ := os.ReadFile(p)
		fmt.Fprintf(&all, "%s: %s\n", p, text[max(0, len(text)-1000):])
	}
	return all.String()
}

func (c *cell) spooling() string {
	return c.path("root/default/common") + ";" + c.path("spool/qmaster")
}

// files makes the tree that the packages' programs take for their installation.
func (c *cell) files() error {
	arch, err := exec.Command(shared + "/util/arch").Output()
	if err != nil {
		return err
	}
	for _, dir := range []string{"root/default/common", "root/bin", "root/lib", "root/utilbin",
		"spool/qmaster/job_scripts", "spool/execd"} {
		if err := os.MkdirAll(c.path(dir), 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{"bin", "lib", "utilbin"} {
		if err := os.Symlink(programs, c.path("root/"+dir+"/"+strings.TrimSpace(string(arch)))); err != nil {
			return err
		}
	}
	if err := os.Symlink(shared+"/util", c.path("root/util")); err != nil {
		return err
	}
	bootstrap := fmt.Sprintf(`admin_user              %s
default_domain          none
ignore_fqdn             false
spooling_method         classic
spooling_lib            libspoolc
spooling_params         %s
binary_path             /usr/sbin
qmaster_spool_dir       %s
security_mode           none
listener_threads        2
worker_threads          2
scheduler_threads       1
`, admin, c.spooling(), c.path("spool/qmaster"))
	global, err := os.ReadFile(shared + "/default-configuration")
	if err != nil {
		return err
	}
	settings := map[string]string{
		"execd_spool_dir": c.path("spool/execd"), "load_report_time": "00:00:02", "max_unheard": "00:03:00",
		"gid_range": gidRange(), "min_uid": "0", "min_gid": "0", "execd_params": "ENABLE_ADDGRP_KILL=true,NOTIFY_KILL=TERM,PDC_INTERVAL=1",
		"shell_start_mode": "unix_behavior",
		// Without the last word qacct knows of a job's end 15 s late.
		"reporting_params": "accounting=true reporting=false flush_time=00:00:01 joblog=false sharelog=00:00:00 " +
			"accounting_flush_time=00:00:00",
		"loglevel": "log_info", "mailer": "/bin/true",
	}
	if err := errors.Join(os.WriteFile(c.path("root/default/common/bootstrap"), []byte(bootstrap), 0o644),
		os.WriteFile(c.path("root/default/common/act_qmaster"), []byte(master+"\n"), 0o644),
		os.WriteFile(c.path("global"), []byte(change(string(global), settings)), 0o644)); err != nil {
		return err
	}
	return exec.Command("/bin/chown", "-R", admin+":"+admin, c.path("root"), c.path("spool")).Run()
}

var cells atomic.Uint32

// gidRange returns groups that no other cell of this machine has. An execd marks a job by one of them, and kills all
// processes with that group when the job ends: with the default range a cell kills jobs of another one.
func gidRange() string {
	const size = 100
	first := 100_000 + 10*size*os.Getpid() + size*int(cells.Add(1)%10)
	return fmt.Sprintf("%d-%d", first, first+size-1)
}

// change sets values in a text as qconf prints it: a key and its value a line.
func change(text string, values map[string]string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		key, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if value, ok := values[key]; ok {
			line = key + " " + value + "\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

// queues makes two queues on all hosts, one for jobs in VMs and one for jobs on the host, as a site has them before
// grange comes.
func (c *cell) queues(ctx context.Context) error {
	if _, err := c.qconf(ctx, "-as", master); err != nil {
		return err
	}
	write := func(name, text string) (string, error) {
		return c.path(name), os.WriteFile(c.path(name), []byte(text), 0o644)
	}
	group, err := write("hostgroup", "group_name @allhosts\nhostlist "+master+"\n")
	if err != nil {
		return err
	}
	node, err := write("exechost", "hostname "+master+"\nload_scaling NONE\ncomplex_values NONE\nuser_lists "+
		"NONE\nxuser_lists NONE\nprojects NONE\nxprojects NONE\nusage_scaling NONE\nreport_variables NONE\n")
	if err != nil {
		return err
	}
	if _, err := c.qconf(ctx, "-Ae", node); err != nil {
		return err
	}
	if _, err := c.qconf(ctx, "-Ahgrp", group); err != nil {
		return err
	}
	pe, err := write("smp", "pe_name smp\nslots 999\nuser_lists NONE\nxuser_lists NONE\nstart_proc_args "+
		"NONE\nstop_proc_args NONE\nallocation_rule $pe_slots\ncontrol_slaves FALSE\njob_is_first_task "+
		"TRUE\nurgency_slots min\naccounting_summary FALSE\nqsort_args NONE\n")
	if err != nil {
		return err
	}
	if _, err := c.qconf(ctx, "-Ap", pe); err != nil {
		return err
	}
	for _, name := range []string{vmQueue, metalQueue} {
		file, err := write(name, queueText(name))
		if err != nil {
			return err
		}
		if _, err := c.qconf(ctx, "-Aq", file); err != nil {
			return err
		}
	}
	scheduler, err := c.qconf(ctx, "-ssconf")
	if err != nil {
		return err
	}
	file, err := write("scheduler", change(scheduler,
		map[string]string{"schedule_interval": "0:0:1", "flush_submit_sec": "1", "flush_finish_sec": "1"}))
	if err != nil {
		return err
	}
	_, err = c.qconf(ctx, "-Msconf", file)
	return err
}

const queueDefaults = `seq_no 0
load_thresholds NONE
suspend_thresholds NONE
nsuspend 1
suspend_interval 00:05:00
priority 0
min_cpu_interval 00:00:02
processors UNDEFINED
qtype BATCH INTERACTIVE
ckpt_list NONE
pe_list smp
rerun TRUE
tmpdir /tmp
shell /bin/sh
prolog NONE
epilog NONE
shell_start_mode unix_behavior
starter_method NONE
suspend_method NONE
resume_method NONE
terminate_method NONE
notify 00:00:05
owner_list NONE
user_lists NONE
xuser_lists NONE
subordinate_list NONE
complex_values NONE
projects NONE
xprojects NONE
calendar NONE
initial_state default
`

func queueText(name string) string {
	text := "qname " + name + "\nhostlist @allhosts\nslots " + strconv.Itoa(slots) + "\n" + queueDefaults
	for _, limit := range []string{"rt", "cpu", "fsize", "data", "stack", "core", "rss", "vmem"} {
		text += "s_" + limit + " INFINITY\nh_" + limit + " INFINITY\n"
	}
	return text
}

// close ends everything that runs in the cell's namespaces, and with it the namespaces.
func (c *cell) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.hosts {
		net, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", h.holder.Process.Pid))
		if err == nil {
			// Daemons start others while they are looked for: again until there are none.
			for range 100 {
				if killIn(net, h.holder.Process.Pid) == 0 {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		h.holder.Process.Kill()
		h.holder.Wait()
	}
	c.hosts = nil
}

func killIn(net string, but int) int {
	found := 0
	links, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, link := range links {
		pid, err := strconv.Atoi(strings.Split(link, "/")[2])
		if target, _ := os.Readlink(link); err != nil || target != net || pid == but {
			continue
		}
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			found++
		}
	}
	return found
}
