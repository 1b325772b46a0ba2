package agent

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/agent/admission"
	"github.com/grange-project/grange/internal/agent/rlimits"
	"github.com/grange-project/grange/internal/allotment"
	"github.com/grange-project/grange/internal/batch/systems"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/procstat"
)

// Caller is who is at the other end of the socket, as the kernel says, and what its batch system or login gave it. Its
// rights on the host are those of UID, GID and Groups. User says whom it counts for.
type Caller struct {
	PID    int
	Start  uint64 // of the process, in clock ticks since boot: tells it from a later one with the same PID
	UID    uint32
	GID    uint32
	Groups []uint32
	// the account that made the process's user namespace, or whose subordinate ID UID is; 0: UID is an account's own,
	// or of a container of root
	Owner    uint32         `json:",omitempty"`
	Nameless bool           `json:",omitempty"` // see account.Service.OneOfMany
	CPUs     farm.CPUSet    // its affinity
	Memory   farm.Bytes     // the least memory limit of its cgroups; 0: none
	Batch    farm.Allotment // its batch job; zero: none
}

// admin may do everything: root, and whoever runs the agent.
func (c Caller) admin() bool { return c.UID == 0 || c.UID == uint32(os.Getuid()) }

// callerOf asks the kernel who holds the other end of conn.
func callerOf(conn *admission.Connection) (Caller, error) {
	cred, groups, err := conn.Peer()
	if err != nil {
		return Caller{}, err
	}
	c := Caller{PID: int(cred.Pid), UID: cred.Uid, GID: cred.Gid, Groups: groups, Owner: conn.Owner}
	if c.PID <= 0 { // another PID namespace: what the caller may use cannot be known
		return Caller{}, &farm.Error{Kind: farm.Denied, Code: CodeHiddenCaller,
			Message: "the agent cannot see the calling process",
			Hint:    "call from the agent's own PID namespace, not from inside a container that hides its processes"}
	}
	gone := &farm.Error{Kind: farm.Denied, Code: CodeHiddenCaller,
		Message: "the process that made this connection has gone", Hint: "call from the process that is the job"}
	if conn.Start == 0 || !procstat.RunsAs(os.DirFS("/"), c.PID, c.UID) {
		return Caller{}, gone
	}
	if conn.Hidden != nil && !c.admin() {
		return Caller{}, &farm.Error{Kind: farm.Denied, Code: CodeHiddenCaller, Err: conn.Hidden,
			Message: "the agent cannot determine who owns the user namespace of the calling process",
			Hint:    "call from outside of containers; for callers in them the agent needs Linux 4.11"}
	}
	limited, err := c.withLimits()
	// what was read, or could not be, may be of a later process of the same user, in a larger job
	if c.Start = conn.Start; !c.alive() {
		return Caller{}, gone
	}
	limited.Start = c.Start
	return limited, err
}

// withLimits adds what the caller's process may use. A process that has gone meanwhile is an error.
func (c Caller) withLimits() (Caller, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(c.PID, &set); err != nil {
		return Caller{}, fmt.Errorf("affinity of process %d: %w", c.PID, err)
	}
	var cpus []int
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	c.CPUs = farm.NewCPUSet(cpus...)
	start, err := procstat.Started(c.PID)
	if err != nil {
		return Caller{}, err
	}
	c.Start = start
	c.Memory = rlimits.Memory(os.DirFS("/"), c.PID)
	if c.Batch, err = systems.JobOf(allotment.Host(), c.PID); err != nil {
		return Caller{}, err
	}
	return c, nil
}

// alive reports whether the very process still runs.
func (c Caller) alive() bool {
	start, err := procstat.Started(c.PID)
	return err == nil && start == c.Start
}
