package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/lazyregexp"
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

// keepsOff reports whether users' jobs must not run on this host itself.
func (s Site) keepsOff() bool {
	ours, ok := Ours(s.Plugstack)
	return ok && ours.Args["default"] != "" && ours.Args["allow_metal"] != "yes"
}

// checkUserEnv: of a job whose environment has SLURM_GET_USER_ENV=1, as --get-user-env and --export with anything but
// ALL put there, and as anybody may, slurmd runs "su - USER" on the host, before any hook of ours: the user's own
// profile is executed there. slurmd takes the one su that it was compiled with, so what it sees in its place decides.
func checkUserEnv(s Site) batch.Finding {
	const what = "su of slurmd"
	seen := s.slurmds()
	for n, dir := range seen {
		seen[n] = dir + "/root"
	}
	if len(seen) == 0 {
		if file := s.maskedSu(); file != "" {
			return batch.Finding{Level: batch.Good, Found: what + " is masked when systemd starts it", Where: "/" + file}
		}
		seen = []string{"."}
	}
	for _, dir := range seen {
		for _, su := range []string{"bin/su", "usr/bin/su"} {
			if !usable(s.Root, dir, su) {
				continue
			}
			f := batch.Finding{Level: batch.Warning, Found: what + " works", Where: "/" + su,
				Why: "sbatch --get-user-env, and --export with anything but ALL, make slurmd start a login shell as " +
					"the user, on the host: the profile in their home runs there, also for a job in a VM",
				Do: "grange slurm install writes a drop-in of slurmd.service, [Service] " +
					"BindReadOnlyPaths=/bin/false:/usr/bin/su; restart slurmd. Or give users a login shell of nologin on " +
					"this host"}
			if s.keepsOff() {
				f.Level = batch.Broken
			}
			return f
		}
	}
	return batch.Finding{Level: batch.Good, Found: what + " is masked"}
}

// maskedSu is the drop-in that masks su for a slurmd that does not run now; "": there is none.
func (s Site) maskedSu() string {
	files, _ := fs.Glob(s.Root, strings.TrimPrefix(dropInDir, "/")+"/*.conf")
	for _, name := range files {
		text, err := fs.ReadFile(s.Root, name)
		if err == nil && slices.Contains(strings.Split(string(text), "\n"), maskSu) {
			return name
		}
	}
	return ""
}

// usable reports whether a program can be run, and is not false(1) mounted in its place.
func usable(root fs.FS, below, program string) bool {
	info, err := fs.Stat(root, path.Join(below, program))
	if err != nil || info.Mode().Perm()&0o111 == 0 {
		return false
	}
	text, err := fs.ReadFile(root, path.Join(below, program))
	for _, nothing := range []string{"bin/false", "usr/bin/false"} {
		if other, bad := fs.ReadFile(root, path.Join(below, nothing)); bad == nil && err == nil &&
			string(other) == string(text) {
			return false
		}
	}
	return true
}

var cgroupControllers = lazyregexp.New(`(?m)^\s*cgroup_controllers\s*=\s*\[([^\]]*)\]`)

// checkLibvirtCgroups: libvirt makes control groups for each VM as well, and looks after them.
func checkLibvirtCgroups(s Site) batch.Finding {
	const conf = "etc/libvirt/qemu.conf"
	text, err := fs.ReadFile(s.Root, conf)
	f := batch.Finding{Level: batch.Advice, Found: "cgroup_controllers is not set", Where: "/" + conf,
		Why: "libvirt then puts each VM into control groups of its own and writes limits there, while the agent puts " +
			"it into the job's: two managers of one process's groups is one too many. With cgroup v2 the VM can then " +
			"join the job only after its start, and what QEMU took by then, " +
			"70 MiB and huge pages that count, is charged to no job", Do: "cgroup_controllers = [], and restart libvirtd"}
	m := cgroupControllers.FindSubmatch(text)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Found = "no such file"
		f.Do = "where this host runs VMs: " + f.Do
	case err != nil:
		f.Found = err.Error()
	case m != nil && strings.TrimSpace(string(m[1])) == "":
		return batch.Finding{Level: batch.Good, Found: "cgroup_controllers = []", Where: "/" + conf}
	case m != nil:
		f.Found = fmt.Sprintf("cgroup_controllers = [%s]", strings.Join(strings.Fields(string(m[1])), " "))
	}
	return f
}

// checkAgentConf: of the agent's job on a host where slurm.conf is elsewhere. It learns the path from a running job's
// slurmstepd, and has none when it closes a sick host.
func checkAgentConf(s Site) batch.Finding {
	where := []string{"/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf"}
	if slices.Contains(where, s.Slurm.Path) {
		return batch.Finding{Level: batch.Good, Found: s.Slurm.Path}
	}
	return batch.Finding{Level: batch.Advice, Found: "slurm.conf is " + s.Slurm.Path,
		Why: "Slurm's programs look for it elsewhere: the agent asks squeue for rules about accounts and partitions, " +
			"and scontrol to close a sick host",
		Do: "in a drop-in of grange-agent.service: [Service] Environment=SLURM_CONF=" + s.Slurm.Path}
}

// checkReservedCPUs: a job that Slurm gives a CPU which the agent keeps for the host can have no VM. Which CPUs Slurm
// keeps is known to slurmd alone, so only that it keeps any is looked for.
func checkReservedCPUs(s Site) batch.Finding {
	if s.ReservedCPUs.Len() == 0 {
		return batch.Finding{Level: batch.Good, Found: "none"}
	}
	for _, node := range s.Slurm.nodes {
		if text := strings.ToLower(node.Value); strings.Contains(text, "corespeccount=") ||
			strings.Contains(text, "cpuspeclist=") {
			return batch.Finding{Level: batch.Good, Found: s.ReservedCPUs.String(),
				Where: fmt.Sprintf("%s:%d", node.File, node.Line)}
		}
	}
	return batch.Finding{Level: batch.Warning, Found: "reserved_cpus of the agent is " + s.ReservedCPUs.String() +
		", and Slurm keeps no CPU from jobs", Where: s.Slurm.Path,
		Why: "a job that Slurm gives one of these CPUs has no VM: it ends with 197 (too-big)",
		Do: "CoreSpecCount or CpuSpecList in the node's line, with TaskPlugin=task/cgroup and ConstrainCores=yes; " +
			"slurmd's log says which CPUs these are"}
}
