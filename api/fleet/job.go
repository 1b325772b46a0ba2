package fleet

import (
	"time"

	"github.com/grange-project/grange/api"
)

// RouteJobs takes which jobs and workers of a host have not ended: POST HostJobs → 204. It is for agents of
// capability 6.
const RouteJobs = "/v1/host/jobs"

// CapabilityJobs is that of the first agents and servers that know RouteJobs.
const CapabilityJobs = 6

// MaxHostJobs is how many jobs a host reports at most: those that have a VM, and those that wait the longest.
const MaxHostJobs = 1000

// HostJobs is all jobs and workers of a host that have not ended: level, not edge.
type HostJobs struct {
	Jobs []Job `json:"jobs"`
}

// Job is the VM of a job or a worker: as its host reported it last, or as its record has it when it has ended.
type Job struct {
	ID    string `json:"id"`
	Kind  string `json:"kind"`  // job, worker
	State string `json:"state"` // one of JobStates, or JobEnded
	// of one that has not ended: what it waits for; for people
	Why     string `json:"why,omitempty"`
	Name    string `json:"name,omitempty"`  // of a worker
	Batch   string `json:"batch,omitempty"` // of the batch system, as slurm/17
	Queue   string `json:"queue,omitempty"`
	User    string `json:"user,omitempty"` // as the host knows them
	Account string `json:"account,omitempty"`
	Image   string `json:"image,omitempty"`
	Shape   string `json:"shape,omitempty"`
	Cores   int    `json:"cores"`
	Memory  uint64 `json:"memory"` // bytes

	Asked  time.Time        `json:"asked,omitzero"`   // for its VM
	Phases []api.StartPhase `json:"phases,omitempty"` // of the start, as far as it has come

	// Set by the server.
	Host    string `json:"host,omitempty"`
	Cell    string `json:"cell,omitempty"`
	Project string `json:"project,omitempty"`
	// its host is not heard of: the rest is what was reported last
	Silent bool       `json:"silent,omitempty"`
	Record *api.Usage `json:"record,omitempty"` // of one that has ended
}

// JobEnded is the state of a job that has ended.
const JobEnded = "ended"

// States of jobs that have not ended.
const (
	JobWaiting      = "waiting" // for room
	JobStarting     = "starting"
	JobRunning      = "running"
	JobSuspended    = "suspended"
	JobUnresponsive = "unresponsive"
	JobKept         = "kept" // the job has ended; its VM was asked to stay
)

// JobStates are those of jobs that have not ended, in the order in which jobs pass through them.
var JobStates = []string{JobWaiting, JobStarting, JobRunning, JobSuspended, JobUnresponsive, JobKept}

// JobQuery chooses jobs that have not ended; what is empty chooses all.
type JobQuery struct {
	State                     string // one of JobStates
	User, Project, Cell, Host string
	After                     string // of a page: Next of the one before
	Limit                     int    // of a page; 0: 1000
}
