package setup

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/batch"
)

func checkStorage(s Site) batch.Finding {
	const key = "AccountingStorageType"
	if v := strings.ToLower(s.Slurm.Get(key)); v != "" && v != "accounting_storage/none" {
		return s.slurm(key, batch.Good, "", "")
	}
	return s.slurm(key, batch.Warning,
		"sacct knows no job: the accounts have none of this cluster's, and grange writes no AdminComment",
		"AccountingStorageType=accounting_storage/slurmdbd, and AccountingStorageHost")
}

// checkNoHold: the prolog refuses jobs on a host whose Slurm does not load the plug-in.
func checkNoHold(s Site) batch.Finding {
	const key = "SchedulerParameters"
	if !slices.Contains(s.Slurm.List(key), "nohold_on_prolog_fail") {
		return s.slurm(key, batch.Good, "", "")
	}
	f := s.slurm(key, batch.Warning,
		"Slurm queues a job that a prolog refused again at once and does not hold it: it goes from host to host, and "+
			"each that refuses it is drained", "leave nohold_on_prolog_fail out")
	f.Found = key + " has nohold_on_prolog_fail"
	return f
}

// prologFlags returns the words of PrologFlags in lower case, and those that they imply.
func (c Conf) prologFlags() []string {
	flags := c.List("PrologFlags")
	if slices.Contains(flags, "x11") || slices.Contains(flags, "runinjob") {
		flags = append(flags, "contain")
	}
	if slices.Contains(flags, "contain") {
		flags = append(flags, "alloc")
	}
	return flags
}

// checkPrologFlags looks for Contain: the VM of an allocation lasts as long as Slurm's extern step.
func checkPrologFlags(s Site) batch.Finding {
	const key = "PrologFlags"
	flags := s.Slurm.prologFlags()
	why := "each srun of one salloc boots a VM of its own, and files in the VM's /tmp are gone with each"
	switch {
	case slices.Contains(flags, "contain"):
		return s.slurm(key, batch.Good, "", "")
	case slices.Contains(flags, "nohold"):
		return s.slurm(key, batch.Advice, why, "PrologFlags=Contain without NoHold: Slurm takes one of them only")
	case !slices.Contains(flags, "alloc"):
		why += "; the prolog runs only with a job's first step, so a host that cannot run VMs is noticed later"
	}
	return s.slurm(key, batch.Advice, why, "PrologFlags=Contain")
}

func checkPrologTimeout(s Site) batch.Finding {
	const least = 30
	for _, key := range []string{"PrologTimeout", "PrologEpilogTimeout"} {
		if n := number(s.Slurm.Get(key), 0); n > 0 && n < least {
			return s.slurm(key, batch.Warning,
				fmt.Sprintf("Slurm drains the host when grange's prolog takes longer than %d s, as it may while the "+
					"host is busy", n), key+"=300")
		}
	}
	return s.slurm("PrologEpilogTimeout", batch.Good, "", "")
}

// checkVSize: Slurm multiplies a job's memory by VSizeFactor and sets that as RLIMIT_AS.
func checkVSize(s Site) batch.Finding {
	const key = "VSizeFactor"
	if number(s.Slurm.Get(key), 0) == 0 {
		return s.slurm(key, batch.Good, "", "")
	}
	return s.slurm(key, batch.Warning,
		"it limits the address space of the wrapper, which reserves more than it uses: where jobs have little memory "+
			"the wrapper does not start, and in the VM the limit holds for the job's programs",
		"leave VSizeFactor out: ConstrainRAMSpace limits the memory that is used")
}

func checkSelect(s Site) batch.Finding {
	const key = "SelectType"
	if strings.ToLower(s.Slurm.Get(key)) != "select/linear" {
		return s.slurm(key, batch.Good, "", "")
	}
	return s.slurm(key, batch.Advice, "each job has a whole host, so that a host runs one VM at a time",
		"SelectType=select/cons_tres")
}

func checkSampling(s Site) batch.Finding {
	const key = "JobAcctGatherFrequency"
	list := s.Slurm.List(key)
	if !slices.Contains(list, "0") && !slices.Contains(list, "task=0") {
		return s.slurm(key, batch.Good, "", "")
	}
	return s.slurm(key, batch.Warning,
		"Slurm reads a job's CPU time and memory at its end only, when QEMU may have gone: sstat has none, and sacct "+
			"may have too little", "JobAcctGatherFrequency=30")
}

// checkSpecUsage: of CPUs that the agent keeps for the host, users must not get any.
func checkSpecUsage(s Site) batch.Finding {
	const key = "AllowSpecResourcesUsage"
	v := s.Slurm.Get(key)
	if s.ReservedCPUs.Len() == 0 || !yes(v) && v != "1" {
		return s.slurm(key, batch.Good, "", "")
	}
	return s.slurm(key, batch.Warning,
		"a job with --core-spec=0 is given the CPUs that the agent keeps for the host: it has no VM, and ends with 197 "+
			"(too-big)", "AllowSpecResourcesUsage=no")
}

func checkCgroupPlugin(s Site) batch.Finding {
	const key = "CgroupPlugin"
	if strings.ToLower(s.Cgroup.Get(key)) != "disabled" {
		return s.cgroup(key, batch.Good, "", "")
	}
	return s.cgroup(key, batch.Broken,
		"slurmd makes no control groups: task/cgroup and proctrack/cgroup do not work, and nothing limits, ends or "+
			"accounts QEMU", "CgroupPlugin=autodetect")
}

// vmDevices are what QEMU opens on a host.
var vmDevices = []string{"/dev/kvm", "/dev/net/tun", "/dev/vhost-net", "/dev/vfio/vfio"}

// checkDevices: a device that gres.conf names is closed to each job that did not ask for it.
func checkDevices(s Site) batch.Finding {
	const key = "ConstrainDevices"
	if !yes(s.Cgroup.Get(key)) {
		return s.cgroup(key, batch.Good, "", "")
	}
	for _, g := range slices.Concat(s.Gres.gres, s.Gres.nodes) {
		for _, word := range strings.Fields(g.Value) {
			name, file, _ := strings.Cut(word, "=")
			if strings.EqualFold(name, "File") && slices.Contains(vmDevices, file) {
				return batch.Finding{Level: batch.Broken, Found: "File=" + file + " in gres.conf, and ConstrainDevices=yes",
					Where: fmt.Sprintf("%s:%d", g.File, g.Line),
					Why:   "a job that does not ask for this resource cannot use the device, and neither can its VM",
					Do:    "leave " + file + " out of gres.conf: the agent alone opens it for VMs"}
			}
		}
	}
	return s.cgroup(key, batch.Good, "", "")
}

// checkContainer looks at directories that a job has of its own: the wrapper needs those of the host.
func checkContainer(s Site) batch.Finding {
	const key = "JobContainerType"
	ours, ok := Ours(s.Plugstack)
	if !ok || strings.ToLower(s.Slurm.Get(key)) != "job_container/tmpfs" {
		return s.slurm(key, batch.Good, "", "")
	}
	dirs := []string{"/tmp", "/dev/shm"}
	if set := s.Container.Get("Dirs"); set != "" {
		dirs = strings.Split(set, ",")
	}
	socket, wrapper := ours.Args["socket"], ours.Args["wrapper"]
	if socket == "" {
		socket = "/run/grange/agent.sock"
	}
	if wrapper == "" {
		wrapper = "/usr/local/bin/grange"
	}
	for _, dir := range dirs {
		for _, file := range []string{socket, wrapper} {
			if rel, err := filepath.Rel(dir, file); err == nil && filepath.IsLocal(rel) {
				return batch.Finding{Level: batch.Broken, Found: "Dirs has " + dir + ", with " + file + " below it",
					Where: s.Container.Where("Dirs"),
					Why:   "a job has a directory of its own there, and the wrapper finds no agent, or is not found",
					Do:    "leave " + dir + " out of Dirs in job_container.conf"}
			}
		}
	}
	return s.slurm(key, batch.Good, "", "")
}
