package slurm

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// slurmds are the daemon's processes on this host, as directories below Root.
func (s Site) slurmds() []string {
	names, _ := fs.Glob(s.Root, "proc/[0-9]*/comm")
	var dirs []string
	for _, name := range names {
		if text, err := fs.ReadFile(s.Root, name); err == nil && strings.TrimSpace(string(text)) == "slurmd" {
			dirs = append(dirs, path.Dir(name))
		}
	}
	return dirs
}

// checkUserEnv: `sbatch --get-user-env`, and --export=NONE which implies it, has slurmd run "su - USER" on the host, before any hook of ours: the
// user's own profile is executed there. slurmd takes the one su that it was compiled with, so what it sees in its place decides.
func checkUserEnv(s Site) Finding {
	const what = "su of slurmd"
	dirs := s.slurmds()
	if len(dirs) == 0 {
		return Finding{Level: Advice, Found: "slurmd does not run", Why: "whether it could start a user's login shell is not to be seen", Do: "check again when it runs"}
	}
	for _, dir := range dirs {
		for _, su := range []string{"bin/su", "usr/bin/su"} {
			if usable(s.Root, dir+"/root", su) {
				return Finding{Level: Warning, Found: what + " works", Where: "/" + su,
					Why: "sbatch --export=NONE and --get-user-env make slurmd start a login shell as the user, on the host: the profile in their home runs there, also for a job in a VM",
					Do:  "in a drop-in of slurmd.service: [Service] BindReadOnlyPaths=/bin/false:/usr/bin/su; or users whose login shell on this host is nologin"}
			}
		}
	}
	return Finding{Level: Good, Found: what + " is masked"}
}

// usable tells whether a program can be run, and is not false(1) mounted in its place.
func usable(root fs.FS, below, program string) bool {
	info, err := fs.Stat(root, path.Join(below, program))
	if err != nil || info.Mode().Perm()&0o111 == 0 {
		return false
	}
	text, err := fs.ReadFile(root, path.Join(below, program))
	for _, nothing := range []string{"bin/false", "usr/bin/false"} {
		if other, bad := fs.ReadFile(root, path.Join(below, nothing)); bad == nil && err == nil && string(other) == string(text) {
			return false
		}
	}
	return true
}

var cgroupControllers = regexp.MustCompile(`(?m)^\s*cgroup_controllers\s*=\s*\[([^\]]*)\]`)

// checkLibvirtCgroups: libvirt makes control groups for each VM as well, and looks after them.
func checkLibvirtCgroups(s Site) Finding {
	const conf = "etc/libvirt/qemu.conf"
	text, err := fs.ReadFile(s.Root, conf)
	f := Finding{Level: Advice, Found: "cgroup_controllers is not set", Where: "/" + conf,
		Why: "libvirt then puts each VM into control groups of its own and writes limits there, while the agent puts it into the job's: two managers of one process's groups is one too many",
		Do:  "cgroup_controllers = [], and restart libvirtd"}
	m := cgroupControllers.FindSubmatch(text)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Found = "no such file"
		f.Do = "where this host runs VMs: " + f.Do
	case err != nil:
		f.Found = err.Error()
	case m != nil && strings.TrimSpace(string(m[1])) == "":
		return Finding{Level: Good, Found: "cgroup_controllers = []", Where: "/" + conf}
	case m != nil:
		f.Found = fmt.Sprintf("cgroup_controllers = [%s]", strings.Join(strings.Fields(string(m[1])), " "))
	}
	return f
}

// checkAgentConf: of the agent's job on a host where slurm.conf is elsewhere. It learns the path from a running job's slurmstepd, and has none
// when it closes a sick host.
func checkAgentConf(s Site) Finding {
	where := []string{"/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf"}
	if slices.Contains(where, s.Slurm.Path) {
		return Finding{Level: Good, Found: s.Slurm.Path}
	}
	return Finding{Level: Advice, Found: "slurm.conf is " + s.Slurm.Path, Why: "Slurm's programs look for it elsewhere: the agent asks squeue for rules about accounts and partitions, and scontrol to close a sick host",
		Do: "in a drop-in of grange-agent.service: [Service] Environment=SLURM_CONF=" + s.Slurm.Path}
}
