package condorlab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// root is a machine of its own: another Debian's tree below an overlay, in network, host name, process and mount
// namespaces. It ends with us, whatever ends us: what holds it reads our pipe.
type root struct {
	holder *exec.Cmd
	stdin  *os.File
	pid    int // of its first process, in our namespace
}

// tree makes the Debian tree that has HTCondor, once a machine.
func tree(ctx context.Context) (string, error) {
	_, source, _, _ := runtime.Caller(0)
	script := filepath.Join(filepath.Dir(source), "..", "..", "..", "scripts", "debian-root")
	cmd := exec.CommandContext(ctx, script, "trixie", "-", "condor", "minicondor", "procps", "iproute2", "python3")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", script, err, errs.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// inside makes the machine and starts condor_master. $1 the tree, $2 the lab's directory, $3 the host's name and $4 its
// address. The lab's directory is seen at its own path, and so are the directories behind $6. NAME.files/ of it are
// copied over the tree. $5 is empty for the first machine, which has a bridge; another waits until it is plugged into
// that. $6 is run before the daemons start.
//
// HTCondor 23.9 knows version 1 of control groups as systemd mounts it, cpu and cpuacct together. Where they are apart
// it gets cpuacct in the place of both: it complains that it can not set shares, and counts.
const inside = `set -e
tree=$1 lab=$2 name=$3 address=$4 beside=$5
shell=$6
shift 6
work=$lab/$name.machine
read -r pid rest </proc/self/stat
mount --make-rprivate /
mount -t tmpfs -o mode=755 none "$work"; mkdir "$work/up" "$work/work" "$work/root"
mount -t overlay -o "lowerdir=$tree,upperdir=$work/up,workdir=$work/work" none "$work/root"
m=$work/root
cp -a "$lab/$name.files/." "$m/"
mount -t tmpfs -o mode=1777 none "$m/tmp"; mount -t tmpfs -o mode=755 none "$m/run"; mkdir "$m/run/lock"
mount -t proc proc "$m/proc"; mount -t sysfs sys "$m/sys"; mount --rbind /dev "$m/dev"
cg=$m/sys/fs/cgroup
if [ -d /sys/fs/cgroup/memory ]; then
	mount -t tmpfs -o mode=755 none "$cg"
	for c in memory freezer devices pids; do
		[ -d /sys/fs/cgroup/$c ] || continue
		mkdir "$cg/$c"; mount --bind /sys/fs/cgroup/$c "$cg/$c"
	done
	mkdir "$cg/cpu,cpuacct"
	if [ -d /sys/fs/cgroup/cpu,cpuacct ]; then mount --bind /sys/fs/cgroup/cpu,cpuacct "$cg/cpu,cpuacct"; else mount --bind /sys/fs/cgroup/cpuacct "$cg/cpu,cpuacct"; fi
else
	mount --rbind /sys/fs/cgroup "$cg"
fi
for dir in "$lab" "$@"; do mkdir -p "$m$dir"; mount --bind "$dir" "$m$dir"; done
hostname "$name"
ip link set lo up
[ -n "$beside" ] || ip link add br0 type bridge
cd "$m"; mkdir -p old; pivot_root . old; umount -l /old; cd /
echo "ready $pid"
exec >/var/log/condor/out 2>&1
link=${beside:+eth0}; link=${link:-br0}
until ip link show "$link" >/dev/null 2>&1; do sleep 0.05; done
ip addr add "$address/24" dev "$link"; ip link set "$link" up
eval "$shell"
condor_master -f </dev/null &
while :; do wait; sleep 1; done
`

// enter makes a machine, on the network of another where there is one.
func enter(ctx context.Context, tree, lab, name, address string, beside *root, o Options) (*root, error) {
	if err := os.MkdirAll(filepath.Join(lab, name+".machine"), 0o755); err != nil {
		return nil, err
	}
	join := ""
	if beside != nil {
		join = "yes"
	}
	// The outer shell keeps our pipe; unshare dies with it, and the first process of the namespace with unshare.
	const outer = `"$@" </dev/null & u=$!; cat >/dev/null; kill -KILL $u; wait $u 2>/dev/null; exit 0`
	cmd := exec.Command("/bin/sh", append([]string{"-c", outer, "holder", "/usr/bin/unshare", "--net", "--uts", "--pid",
		"--mount", "--fork", "--kill-child=KILL", "/bin/sh", "-c", inside, "inside", tree, lab, name, address, join,
		o.Shell}, o.Binds...)...)
	cmd.Env = environ("root", "/root")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	cmd.Stdin = in
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, out.Close())
	}
	errs, err := os.CreateTemp(lab, "machine-*.log") // a pipe would be held open by all that runs in there
	if err != nil {
		return nil, errors.Join(err, out.Close())
	}
	defer errs.Close()
	cmd.Stderr = errs
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	r := &root{holder: cmd, stdin: out}
	stop := context.AfterFunc(ctx, func() { out.Close() })
	defer stop()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	word, pid, _ := strings.Cut(strings.TrimSpace(line), " ")
	if r.pid, _ = strconv.Atoi(pid); err != nil || word != "ready" || r.pid == 0 {
		text, _ := os.ReadFile(errs.Name())
		r.leave()
		return nil, fmt.Errorf("a machine of %s: %w\n%s", tree, err, text)
	}
	if beside == nil {
		return r, nil
	}
	// A cable from the first one's bridge.
	net := fmt.Sprintf("--net=/proc/%d/ns/net", beside.pid)
	for _, words := range [][]string{{"link", "add", "to-" + name, "type", "veth", "peer", "name", "eth0", "netns",
		strconv.Itoa(r.pid)}, {"link", "set", "to-" + name, "master", "br0", "up"}} {
		cmd := exec.CommandContext(ctx, "/usr/bin/nsenter", append([]string{net, "ip"}, words...)...)
		cmd.Env = environ("root", "/root")
		if out, err := cmd.CombinedOutput(); err != nil {
			r.leave()
			return nil, fmt.Errorf("ip %v: %w: %s", words, err, out)
		}
	}
	return r, nil
}

func environ(user, home string) []string {
	return []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "HOME=" + home, "USER=" + user,
		"LOGNAME=" + user, "SHELL=/bin/sh"}
}

// command is a program of that machine, of root or of nobody.
func (r *root) command(ctx context.Context, user, home string, name string, args ...string) *exec.Cmd {
	outer := []string{"--target", strconv.Itoa(r.pid), "--net", "--uts", "--pid", "--mount", "--root", "--wdns=" + home}
	if user != "root" {
		outer = append(outer, "/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
	}
	cmd := exec.CommandContext(ctx, "/usr/bin/nsenter", append(append(outer, "/usr/bin/env", name), args...)...)
	cmd.Env, cmd.Dir = environ(user, home), "/"
	cmd.WaitDelay = time.Second
	return cmd
}

// leave ends the machine. Its mounts and its network go with its last process.
func (r *root) leave() {
	if r == nil {
		return
	}
	r.stdin.Close()
	r.holder.Wait()
}

// path is where a file of the machine is seen from here.
func (r *root) path(name string) string { return fmt.Sprintf("/proc/%d/root%s", r.pid, name) }
