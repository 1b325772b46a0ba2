package setup

import (
	"fmt"
	"strings"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
)

// Setup is what an installation chooses.
type Setup struct {
	Grange   string   // path of our program on the hosts
	Socket   string   // of the agent; "": the usual one, which the wrapper takes without a word
	Queues   []string // whose jobs run in VMs
	Requeues int      // how often a job may be queued again whose VM was not started
}

// Starter is the value of JOB_STARTER. LSF puts the command line in %USRCMD's place as it stands; between these quotes,
// and with those that esub wrote, all of it is one word, and nothing of "a | b" runs on the host. exec: the shell has
// gone when the job runs.
func (s Setup) Starter() string {
	words := []string{"exec", s.Grange, "exec", "--batch", string(farm.LSF)}
	if s.Socket != "" {
		words = append(words, "--socket", s.Socket)
	}
	return strings.Join(append(words, fmt.Sprintf(`${%s:+--image "$%[1]s"}`, ImageVariable), "--", "'%USRCMD'"), " ")
}

// QueueLines are those to put between Begin Queue and End Queue in lsb.queues.
func (s Setup) QueueLines() []string {
	return []string{
		"JOB_STARTER         = " + s.Starter(),
		fmt.Sprintf("REQUEUE_EXIT_VALUES = %d", batch.ExitNotStarted),
		fmt.Sprintf("MAX_JOB_REQUEUE     = %d", s.Requeues),
		"RERUNNABLE          = no",
	}
}

// ConfLines are for lsf.conf. A mandatory esub that is not there refuses every submission. With LSF_PROCESS_TRACKING
// LSF would send its signals to QEMU as well, which TERM ends: the job would not have its time to clean up. lsrun runs
// programs on hosts without any job.
func (s Setup) ConfLines() []string {
	return []string{`LSB_ESUB_METHOD="grange"`, "LSB_SUB_COMMANDNAME=Y", "LSF_DISABLE_LSRUN=Y",
		"LSF_PROCESS_TRACKING=N", "LSF_LINUX_CGROUP_ACCT=Y", "LSB_RESOURCE_ENFORCE=\"memory cpu\""}
}

// EsubScript is LSF_SERVERDIR/esub.grange. LSF goes on with a submission whose esub fails, unless it ends with this
// status.
func (s Setup) EsubScript() string {
	return fmt.Sprintf("#!/bin/sh\n# grange: the command line of a job becomes one word, so that all of it runs in "+
		"the VM.\n%s lsf esub --queues %s -- \"$@\" || exit \"${LSB_SUB_ABORT_VALUE:-97}\"\n", s.Grange,
		strings.Join(s.Queues, ","))
}

// ElimScript is LSF_SERVERDIR/elim.grange.
func (s Setup) ElimScript() string {
	command := s.Grange + " lsf elim"
	if s.Socket != "" {
		command += " --socket " + s.Socket
	}
	return "#!/bin/sh\n# grange: free slots for VMs and the images of this host, for -R \"select[...]\".\nexec " +
		command + "\n"
}

// Files are all that an installation needs, by name.
func (s Setup) Files() map[string]string {
	var queues strings.Builder
	for _, q := range s.Queues {
		fmt.Fprintf(&queues, "# in the queue %s, between Begin Queue and End Queue:\n%s\n", q,
			strings.Join(s.QueueLines(), "\n"))
	}
	return map[string]string{
		"esub.grange": s.EsubScript(),
		"elim.grange": s.ElimScript(),
		"lsb.queues":  queues.String(),
		"lsf.conf":    strings.Join(s.ConfLines(), "\n") + "\n",
		"lsf.shared": "# between Begin Resource and End Resource; one grange_IMAGE for each image that jobs select " +
			"by\n" + "grange_slots  Numeric 15 N (VMs of one CPU that would start now)\n",
		"lsf.cluster": "# between Begin ResourceMap and End ResourceMap\ngrange_slots  [default]\n",
	}
}
