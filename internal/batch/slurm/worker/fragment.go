package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/atomicfile"
	"github.com/grange-project/grange/internal/farm"
)

// Fragment is what slurm.conf needs for workers.
type Fragment struct {
	Programs    string // directory of the programs that WritePrograms wrote
	Nodes       string // host list of the CLOUD nodes
	CPUs        int
	Memory      farm.Bytes // of a VM
	Features    string     // of all nodes, as Slurm writes them; "": none
	Partition   string
	BootTimeout time.Duration
	IdleTime    time.Duration // after which an idle node is powered down
	Dynamic     string        // feature of dynamic nodes; "": there are none
}

// guestKernel is what a guest's kernel keeps of its memory, at the most: slurmd reports the rest, and a node with less
// than slurm.conf says is drained.
func guestKernel(memory farm.Bytes) farm.Bytes { return 96*farm.MiB + memory/32 }

// RealMemory is what a node has of its VM's memory, in slurm.conf's MiB.
func (f Fragment) RealMemory() int { return int((f.Memory - guestKernel(f.Memory)) / farm.MiB) }

// String is the text for slurm.conf. Each line has been there for a measured reason.
func (f Fragment) String() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Nodes that are VMs of grange. Written by `grange worker config`.")
	line("# Guests know the controller's address alone: they ask it for this file, and say themselves where they are.")
	line(
		"SlurmctldParameters=enable_configless,cloud_reg_addrs,idle_on_node_suspend,power_save_interval=1,power_save_min_interval=0")
	line("CommunicationParameters=NoAddrCache")
	line("# No guest can find another one by name: slurmctld talks to each itself.")
	line("TreeWidth=65533")
	line("# Nodes that are powered down stay visible.")
	line("PrivateData=cloud")
	line("ReturnToService=2")
	line("# A pending job is looked at again by the full scheduler only, by default once a minute.")
	line("SchedulerParameters=sched_interval=2,sched_min_interval=0,batch_sched_delay=0,bf_interval=1")
	for _, p := range programs {
		line("%s=%s", p.key, filepath.Join(f.Programs, p.file))
	}
	line("SuspendTime=%d", int(f.IdleTime.Seconds()))
	line("SuspendTimeout=5")
	line("ResumeTimeout=%d", int(f.BootTimeout.Seconds()))
	line("ResumeRate=0")
	line("SuspendRate=0")
	features := ""
	if f.Features != "" {
		features = " Feature=" + f.Features
	}
	line("NodeName=%s CPUs=%d RealMemory=%d%s State=CLOUD", f.Nodes, f.CPUs, f.RealMemory(), features)
	nodes := f.Nodes
	if f.Dynamic != "" {
		line("# Room for nodes that nobody wrote down: `grange worker start --dynamic`.")
		line("MaxNodeCount=1024")
		line("NodeSet=%s Feature=%s", f.Dynamic, f.Dynamic)
		line("PartitionName=%s Nodes=%s State=UP OverSubscribe=EXCLUSIVE", f.Dynamic, f.Dynamic)
	}
	line("# One job a node: its VM goes with it.")
	line("PartitionName=%s Nodes=%s State=UP OverSubscribe=EXCLUSIVE", f.Partition, nodes)
	return b.String()
}

// programs are what slurmctld calls. It gives programs no arguments of ours, so each is a small script.
var programs = []struct{ key, file, command string }{
	{"ResumeProgram", "resume", `resume "$1"`},
	{"SuspendProgram", "suspend", `suspend "$1"`},
	{"ResumeFailProgram", "fail", `fail "$1"`},
	{"PrologSlurmctld", "prolog", `prolog`},
	{"EpilogSlurmctld", "epilog", `epilog`},
}

// WritePrograms writes the programs that Fragment names into dir: grange is the path of our program, config that of
// worker.toml.
func WritePrograms(dir, grange, config string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, p := range programs {
		text := fmt.Sprintf("#!/bin/sh\n# %s of Slurm. Written by `grange worker config`.\nexec %s worker --config "+
			"%s %s\n", p.key, farm.ShellWords(grange), farm.ShellWords(config), p.command)
		// slurmctld may call it at this moment
		if err := atomicfile.Write(filepath.Join(dir, p.file), []byte(text), 0o755); err != nil {
			return err
		}
	}
	return nil
}
