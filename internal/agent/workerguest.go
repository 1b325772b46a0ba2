package agent

import (
	"bytes"
	_ "embed" // worker.sh
	"fmt"
	"os"

	"github.com/grange-project/grange/internal/agent/facts"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
)

const (
	mungeKeyPath = "/etc/munge/munge.key"  // in the VM
	siteHookPath = "/run/grange-site-hook" // in worker.sh as well
)

// workerScript runs as root in a worker's VM before its daemon. Nobody else is there yet, so the key is never read by
// others. munged keeps all it writes below /run: in a full image other directories belong to another user, and munged
// refuses them. Debian's slurmd gets its usual name from a script of its package, which an image of unpacked packages
// never ran. Of unified cgroups slurmd asks systemd for a scope, and ends where there is none; the older kind it
// manages by itself.
//
//go:embed worker.sh
var workerScript []byte

// guestWorker is a worker's daemon as its guest gets it. The cluster's key goes this way alone: it is in no command
// line, no environment, no log, no record, and in no file of the host but the site's own.
func (a workerDesk) guestWorker(j *job, r record) (*guest.Job, error) {
	requests := a.requests()
	c := requests.config().Worker
	key, err := os.ReadFile(c.MungeKey)
	if err != nil {
		return nil, &farm.Error{Kind: farm.Internal, Code: farm.CodeBadConfig,
			Message: "the cluster's key cannot be read", Hint: "see [worker] munge_key in the agent's configuration",
			Err: err}
	}
	hook, err := requests.readHook()
	if err != nil {
		return nil, err
	}
	name, known := r.Worker.Name, requests.facts(r)
	hosts := fmt.Appendf(nil, "127.0.0.1 localhost\n::1 localhost\n%v %s\n", r.Worker.Address.Addr(), name)
	v4 := &guest.Address{CIDR: r.Worker.Address.String(), Gateway: r.Worker.Gateway, DNS: c.DNS}
	var v6 *guest.Address
	if r.Lease != nil {
		v4, v6 = r.Lease.Address()
		hosts = r.Lease.Hosts(name)
	}
	files := []guest.File{
		{Path: mungeKeyPath, Content: key},
		{Path: facts.Path, Content: known.File()},
		{Path: "/etc/hostname", Content: []byte(name + "\n")},
		{Path: "/etc/hosts", Content: hosts},
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
		Address: v4, Address6: v6,
		Env: append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"},
			known.Environment()...), Hook: bytes.Join([][]byte{[]byte("#!/bin/sh\n"), workerScript}, nil),
		Files: files}, nil
}
