// Package capacity replays the jobs of a time on hosts, by the placement that real VMs get, and keeps books of where
// the CPUs of all hosts were: at work for jobs, or lost, and to what. It is pure.
package capacity

import (
	"fmt"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// CodeDemand is of jobs and hosts that cannot be replayed.
const CodeDemand farm.Code = "bad-demand"

// Hosts are equal hosts.
type Hosts struct {
	Kind     string
	Count    int
	Topology farm.Topology
	Reserve  farm.HostReserve
}

// Job is one job. Times are since the beginning, and count in whole seconds.
type Job struct {
	Submit, Wall time.Duration
	CPUs         int
	Memory       farm.Bytes
}

// Outage takes a host away for a time.
type Outage struct {
	Host     int // its number among all, from 0
	From, To time.Duration
	Broken   bool // with its jobs, which begin anew; otherwise the host is drained, and they end
}

// Options say how jobs are replayed.
type Options struct {
	Hosts []Hosts
	Jobs  []Job // in the order in which they are submitted
	// Shape is what all VMs have in common: pages, thread policy, cells. Each has its job's CPUs and memory.
	Shape farm.Shape
	// VMCPUs is the size of VMs that stay, fill the hosts, and take jobs as nodes of a batch system; 0: each job has a
	// VM of its own.
	VMCPUs  int
	Loss    Loss // what VMs lose by their size
	Outages []Outage
	Until   time.Duration       // when the books are closed
	Tell    func(share float64) // unless nil, now and then, how much has been replayed
}

// Books are where CPUs were, in CPU hours. All but Installed are parts of it.
type Books struct {
	Installed float64 `json:"installed"`
	Delivered float64 `json:"delivered"` // to jobs, less what VMs of their size lose
	Overhead  float64 `json:"overhead"`  // what VMs lose by their size
	Repeated  float64 `json:"repeated"`  // by jobs whose host broke, and that began anew
	Beside    float64 `json:"beside"`    // held beside vCPUs, by thread policy and for the emulator
	Reserved  float64 `json:"reserved"`  // for the hosts themselves
	Drained   float64 `json:"drained"`   // free on hosts that take no new job
	Broken    float64 `json:"broken"`
	// Free, while jobs waited: Pieces are of hosts with enough CPUs and memory for one, and not side by side; Memory of
	// hosts with CPUs but too little memory; Mix of hosts with fewer CPUs than any that waited, or than a VM has.
	Pieces float64 `json:"pieces"`
	Memory float64 `json:"memory"`
	Mix    float64 `json:"mix"`
	Idle   float64 `json:"idle"` // free while none waited
}

// Lost is all that was not delivered.
func (b Books) Lost() float64 {
	return b.Overhead + b.Repeated + b.Beside + b.Reserved + b.Drained + b.Broken + b.Pieces + b.Memory + b.Mix + b.Idle
}

func (b *Books) add(o Books) {
	b.Installed += o.Installed
	b.Delivered += o.Delivered
	b.Overhead += o.Overhead
	b.Repeated += o.Repeated
	b.Beside += o.Beside
	b.Reserved += o.Reserved
	b.Drained += o.Drained
	b.Broken += o.Broken
	b.Pieces += o.Pieces
	b.Memory += o.Memory
	b.Mix += o.Mix
	b.Idle += o.Idle
}

// CPUs is how many all hosts have.
func (o Options) CPUs() (n int) {
	for _, h := range o.Hosts {
		n += h.Count * h.Topology.Online.Len()
	}
	return n
}

// Report is what became of the jobs, and of the CPUs.
type Report struct {
	Books
	Kinds map[string]Books `json:"kinds"` // by kind of host

	Ended      int `json:"ended"`      // jobs
	Running    int `json:"running"`    // at the end
	Waiting    int `json:"waiting"`    // at the end
	Impossible int `json:"impossible"` // larger than what any host has, when it is empty
	Restarted  int `json:"restarted"`  // times that a job lost its host

	WaitMedian float64 `json:"wait_median_seconds"` // of jobs that started
	Wait95     float64 `json:"wait_95_seconds"`

	Nodes      int        `json:"nodes"`       // that a batch system sees: hosts, or VMs that stay
	MostVMs    int        `json:"most_vms"`    // at a time
	MostMemory farm.Bytes `json:"most_memory"` // of VMs, at a time
	AllMemory  farm.Bytes `json:"all_memory"`  // that hosts have for VMs
}

// Validate refuses what cannot be replayed.
func (o Options) Validate() error {
	if o.Until < time.Second {
		return demand("a replay of no time", "replay a day or more")
	}
	hosts := 0
	for _, h := range o.Hosts {
		if h.Count < 1 || h.Topology.Online.Empty() {
			return demand(fmt.Sprintf("no host of kind %s", h.Kind), "name how many there are, and what they have")
		}
		hosts += h.Count
	}
	switch {
	case hosts == 0:
		return demand("no hosts", "name some")
	case hosts > MaxHosts || len(o.Jobs) > MaxJobs:
		return demand(fmt.Sprintf("%d hosts and %d jobs are too many", hosts, len(o.Jobs)),
			fmt.Sprintf("replay %d hosts and %d jobs at most", MaxHosts, MaxJobs))
	case o.VMCPUs < 0 || o.VMCPUs > farm.MaxCPUs:
		return demand(fmt.Sprintf("VMs of %d CPUs", o.VMCPUs), "choose a size that a host has")
	}
	for i, j := range o.Jobs {
		if j.Submit < 0 || j.Wall < 0 || j.CPUs < 1 || j.CPUs > farm.MaxCPUs || i > 0 && j.Submit < o.Jobs[i-1].Submit {
			return demand(fmt.Sprintf("job %d makes no sense: %+v", i+1, j), "see the record that it is from")
		}
	}
	for _, out := range o.Outages {
		if out.Host < 0 || out.Host >= hosts || out.From < 0 || out.To < out.From {
			return demand(fmt.Sprintf("an outage makes no sense: %+v", out), "name a host and a time")
		}
	}
	return nil
}

// Bounds of a replay.
const (
	MaxHosts = 100_000
	MaxJobs  = 20_000_000
)

func demand(message, hint string) error {
	return &farm.Error{Kind: farm.Invalid, Code: CodeDemand, Message: message, Hint: hint}
}
