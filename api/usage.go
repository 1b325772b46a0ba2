package api

import "time"

// Usage is the record of what one VM has used: of a job, a worker, or an interval of a cloud VM. The host writes it,
// once; a reader that gets it twice knows it by its ID. An unknown value is left out, and is not zero. For a batch job
// that ran on its host, without a VM, the server writes the record from the batch system's accounts.
type Usage struct {
	ID   string `json:"id"`   // of the record: random, or of UsageMetal a hash of which run of a job it is
	Kind string `json:"kind"` // UsageJob, UsageWorker, UsageVM, UsageMetal
	// its number among the intervals of a cloud VM's machine, from 1; 0 of a job
	Part int    `json:"part,omitempty"`
	VM   string `json:"vm,omitempty"`   // of a cloud VM: its ID at the server
	Name string `json:"name,omitempty"` // of a cloud VM or a worker
	// ID of the first job in a job's VM
	Job   string `json:"job,omitempty"`
	Batch string `json:"batch,omitempty"` // of the batch system, as slurm/17
	Queue string `json:"queue,omitempty"`
	Tasks int    `json:"tasks,omitempty"` // jobs that were in the VM, where there were several

	User    string `json:"user,omitempty"` // as the host knows them; of a cloud VM its owner
	UID     uint32 `json:"uid,omitempty"`
	Account string `json:"account,omitempty"` // of the batch system
	Project string `json:"project,omitempty"`

	// Set by the server, which knows them.
	Host string `json:"host,omitempty"` // name
	Cell string `json:"cell,omitempty"`
	FQAN string `json:"fqan,omitempty"` // VO, group and role, as /atlas/Role=production
	VO   string `json:"vo,omitempty"`
	// the month that it counts in, as 2026-10, and whether its own was closed when it came
	Month string `json:"month,omitempty"`
	Late  bool   `json:"late,omitempty"`
	// why it counts for nobody: a word, and the reason; "": it counts
	Outside string `json:"outside,omitempty"`
	// the site's score of a core of such hardware in a VM of such a size, and its unit; 0: the site has given none
	Score     float64 `json:"score,omitempty"`
	ScoreUnit string  `json:"score_unit,omitempty"`

	Image    string `json:"image,omitempty"`
	Digest   string `json:"digest,omitempty"`
	Shape    string `json:"shape,omitempty"`
	Hardware string `json:"hardware,omitempty"` // kind of the host, as amd-epyc-7302-2s
	Boot     string `json:"boot,omitempty"`     // of the host's kernel, when the record began
	// what the tuning audit found wrong with the host: a digest of all findings, and how many they were
	Tuning   string `json:"tuning,omitempty"`
	Findings int    `json:"findings,omitempty"`

	// Asked is when the VM of a job or a worker was asked for, and Phases are what its start took from then on, waiting
	// for room among it; of releases before, and of cloud VMs, neither is known.
	Asked  time.Time    `json:"asked,omitzero"`
	Phases []StartPhase `json:"phases,omitempty"`

	// Start and End are by the host's wall clock; Wall is by a clock that nobody sets.
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	Wall  float64   `json:"wall_seconds"`

	Cores      int    `json:"cores"`
	Memory     uint64 `json:"memory"`                // bytes that the guest has
	MemoryPeak uint64 `json:"memory_peak,omitempty"` // bytes of QEMU that were resident at most, huge pages apart
	Scratch    uint64 `json:"scratch,omitempty"`     // bytes

	// CPU is what QEMU has used as a whole, as the kernel counts it; of a job without a VM what its batch system says,
	// and nothing where that does not know it.
	// JobCPU is what grange-guest says of the jobs in the VM, and JobMemory of the largest process of them, where they
	// lived to tell.
	CPU       *float64 `json:"cpu_seconds,omitempty"`
	JobCPU    *float64 `json:"job_cpu_seconds,omitempty"`
	JobMemory uint64   `json:"job_memory_peak,omitempty"` // bytes

	// bytes that went through the VM's tap; of a VM without one nobody counts
	NetworkIn  *uint64 `json:"network_in,omitempty"`
	NetworkOut *uint64 `json:"network_out,omitempty"`

	// Ended is how: exit:0, signal:9, a code of docs/errors.md, left, stopped, cut (the next interval follows), moved,
	// unseen or host-booted; of a job without a VM also cancelled, timeout, out of memory and node failed.
	Ended string `json:"ended,omitempty"`
}

// StartPhase is one phase of a start. Phases may be there twice, where a start was tried again, and have gaps.
type StartPhase struct {
	Name         string  `json:"name"`  // fetch, image, grant (with waiting for room), disk, define, boot, guest
	At           float64 `json:"at_ms"` // when it began, from when the VM was asked for
	Milliseconds float64 `json:"ms"`
}

// MaxStartPhases is how many phases a record has at most: the first ones.
const MaxStartPhases = 24

// Kinds of usage.
const (
	UsageJob    = "job"
	UsageWorker = "worker"
	UsageVM     = "vm"
	UsageMetal  = "metal" // a batch job without a VM
)

// How a VM ended, beside what its job or an error says.
const (
	EndedLeft       = "left"        // its caller gave it back, or had gone
	EndedStopped    = "stopped"     // a cloud VM was stopped, or ended
	EndedMoved      = "moved"       // a cloud VM goes on on another host
	EndedCut        = "cut"         // it goes on: the next interval follows
	EndedUnseen     = "unseen"      // no agent was there; what it used is known up to the last look
	EndedHostBooted = "host-booted" // with its host, and as above
)
