package agent

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
)

const (
	mungeKeyPath = "/etc/munge/munge.key" // in the VM
	siteHookPath = "/run/grange-site-hook"
)

// workerScript runs as root in a worker's VM before its daemon. Nobody else is there yet, so the key is never read by
// others. munged keeps all it writes below /run: in a full image other directories belong to another user, and munged
// refuses them. Debian's slurmd gets its usual name from a script of its package, which an image of unpacked packages
// never ran. Of unified cgroups slurmd asks systemd for a scope, and ends where there is none; the older kind it
// manages by itself.
const workerScript = `set -eu
chmod 0700 /etc/munge
chmod 0400 /etc/munge/munge.key
chown -R 0:0 /etc/munge
mkdir -p /run/munge /run/slurm /var/spool /var/log/slurm /var/lib/slurm
chmod 0755 /run/munge
if [ ! -d /run/systemd/system ] && umount /sys/fs/cgroup; then
	mount -t tmpfs -o mode=0755,nosuid,nodev,noexec cgroup /sys/fs/cgroup
	mkdir /sys/fs/cgroup/systemd
	mount -t cgroup -o nosuid,nodev,noexec,none,name=systemd cgroup /sys/fs/cgroup/systemd
	for c in cpuset cpu,cpuacct memory devices freezer; do
		mkdir -p /sys/fs/cgroup/$c
		mount -t cgroup -o nosuid,nodev,noexec,$c cgroup /sys/fs/cgroup/$c 2>/dev/null || rmdir /sys/fs/cgroup/$c
	done
	[ ! -d /sys/fs/cgroup/cpu,cpuacct ] || ln -s cpu,cpuacct /sys/fs/cgroup/cpu
	[ ! -d /sys/fs/cgroup/cpu,cpuacct ] || ln -s cpu,cpuacct /sys/fs/cgroup/cpuacct
fi
for p in slurmd slurmstepd; do
	[ -e /usr/sbin/$p ] || [ ! -e /usr/sbin/$p-wlm ] || ln -s $p-wlm /usr/sbin/$p
done
if [ -e ` + siteHookPath + ` ]; then chmod 0700 ` + siteHookPath + `; ` + siteHookPath + `; fi
munged --key-file=/etc/munge/munge.key --socket=/run/munge/munge.socket.2 --pid-file=/run/munge/munged.pid \
	--log-file=/run/munge/munged.log --seed-file=/run/munge/munged.seed
`

// guestWorker is a worker's daemon as its guest gets it. The cluster's key goes this way alone: it is in no command
// line, no environment, no log, no record, and in no file of the host but the site's own.
func (a workerDesk) guestWorker(j *job, r record) (*guest.Job, error) {
	c := a.config().Worker
	key, err := os.ReadFile(c.MungeKey)
	if err != nil {
		return nil, &farm.Error{Kind: farm.Internal, Code: farm.CodeBadConfig,
			Message: "the cluster's key cannot be read", Hint: "see [worker] munge_key in the agent's configuration",
			Err: err}
	}
	hook, err := a.requests.readHook()
	if err != nil {
		return nil, err
	}
	name, facts := r.Worker.Name, a.requests.facts(r)
	ip := r.Worker.Address.Addr().String()
	files := []guest.File{
		{Path: mungeKeyPath, Content: key},
		{Path: factsPath, Content: facts.file()},
		{Path: "/etc/hostname", Content: []byte(name + "\n")},
		{Path: "/etc/hosts", Content: fmt.Appendf(nil, "127.0.0.1 localhost\n::1 localhost\n%s %s\n", ip, name)},
	}
	if hook != nil {
		files = append(files, guest.File{Path: siteHookPath, Content: hook})
	}
	for inside, path := range c.Files {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, &farm.Error{Kind: farm.Internal, Code: farm.CodeBadConfig,
				Message: "a file for workers cannot be read", Hint: "see [worker] files in the agent's configuration",
				Err: err}
		}
		files = append(files, guest.File{Path: inside, Content: content})
	}
	// Nobody reads the streams of a worker: the daemon writes to the console, which `grange vm console` shows.
	argv := []string{"/bin/sh", "-c", `exec "$@" </dev/null >/dev/console 2>&1`, "worker",
		"slurmd", "-D", "-b", "--conf-server", c.Controller, "-N", name}
	if r.Worker.Conf != "" {
		argv = append(argv, "-Z", "--conf", r.Worker.Conf)
	}
	scratch, disks := machine.GuestDisks(r.Shape)
	return &guest.Job{ID: j.id, Scratch: scratch, Disks: disks, Argv: argv, Dir: "/", Hostname: name,
		User:    guest.User{Name: "root", Home: "/root", Shell: "/bin/sh", Groups: []guest.Group{{Name: "root"}}},
		Address: &guest.Address{CIDR: r.Worker.Address.String(), Gateway: r.Worker.Gateway, DNS: c.DNS},
		Env: append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"},
			facts.environment()...), Hook: bytes.Join([][]byte{[]byte("#!/bin/sh\n"), []byte(workerScript)}, nil),
		Files: files}, nil
}

// workersOnly refuses a job that would be on the host's network: it has no address there, and could take another's.
func workersOnly(s farm.Shape) error {
	if kind, ok := s.Network.Kind(); !ok || kind.Jobs {
		return nil
	}
	return &farm.Error{Kind: farm.Denied, Code: CodeWorkersOnly,
		Message: fmt.Sprintf("network %q is for workers only", s.Network),
		Hint:    "jobs have the networks " + strings.Join(farm.JobNetworks(), " and ")}
}
