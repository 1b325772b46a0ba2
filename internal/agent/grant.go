package agent

import (
	"cmp"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/pools"
	"github.com/grange-project/grange/internal/farm"
)

// getGrant returns to a batch system's wrapper what its job would get, and what the site wants of it.
func (a routes) getGrant(w http.ResponseWriter, r *http.Request, c Caller) error {
	wish := api.JobRequest{Batch: string(c.Batch.System), Pool: r.URL.Query().Get("pool")}
	requests := a.requests()
	c, err := requests.counted(c)
	if err != nil {
		return err
	}
	d, err := requests.decide(c, &wish)
	if err != nil {
		return err
	}
	person := wish.Pool != "" && c.Batch.System == "" // whose request says what size it is to be
	s, err := requests.shape(&wish, c, d)
	if err != nil && !person {
		return err
	}
	config := requests.config()
	binds := d.Binds
	if binds == nil && !person {
		binds = config.Batch.Binds
	}
	return answer(w, api.Grant{Batch: string(c.Batch.System), BatchJob: c.Batch.Job, CPUs: c.allowed().String(),
		Slots: s.CPUs, Memory: uint64(s.Memory), Image: cmp.Or(d.Image, config.DefaultImage), Shape: d.Shape,
		Binds: binds, Requeues: config.Batch.Requeues, WaitTimeout: uint64(config.Batch.WaitTimeout.Milliseconds()),
		Reasons: d.Reasons, Home: pools.HasHome(config.Pools, wish.Pool)})
}

// counted asks the batch system how many CPUs and how much memory the caller's job was given, where nothing on the host
// tells: Slurm counts CPUs that it does not confine jobs to. A job whose batch system has a way to be asked, and does
// not answer, is not started: its VM would have the size of any job's, and nobody would see why it is slow.
func (a requests) counted(c Caller) (Caller, error) {
	slots := c.Batch.CPUs.Empty() && c.Batch.Slots == 0 && c.CPUs.Len() >= a.hostCPUs()
	if c.Batch.System == "" || !slots && c.limit() > 0 {
		return c, nil
	}
	told, err := a.lookups.Of(a.ctx, c.Batch, c.PID)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return c, nil
	case err != nil:
		return c, &farm.Error{Kind: farm.Unavailable, Code: CodeUnknownSize, Err: err,
			Message: "the host does not tell what job " + c.Batch.Job +
				" was given, and its batch system cannot be asked",
			Hint: "see whether the batch system answers on this host"}
	}
	if slots {
		c.Batch.Slots = told.Slots
	}
	if c.limit() == 0 {
		c.Batch.Memory = told.Memory
	}
	return c, nil
}

// allowed are the host threads that a VM of the caller may be given.
func (c Caller) allowed() farm.CPUSet {
	if c.Batch.CPUs.Len() > 0 {
		return c.Batch.CPUs // of all its tasks; each may be bound to some of them
	}
	return c.CPUs
}

// mostCPUs is how many of them, for a batch system may count CPUs without saying which.
func (c Caller) mostCPUs() int {
	n := c.allowed().Len()
	if c.Batch.Slots > 0 {
		n = min(n, c.Batch.Slots)
	}
	return n
}

// limit is all the memory that a VM of the caller may cost its host; 0: no limit.
func (c Caller) limit() farm.Bytes {
	if c.Memory == 0 || c.Batch.Memory == 0 {
		return max(c.Memory, c.Batch.Memory)
	}
	return min(c.Memory, c.Batch.Memory)
}

// allotted is the shape of a batch job that asks for none: all the CPUs that it was given, and all the memory but for
// QEMU's own need. Where the batch system says nothing of either, that of s stays.
func (a requests) allotted(s farm.Shape, c Caller) farm.Shape {
	if given := c.mostCPUs(); c.Batch.CPUs.Len() > 0 || c.Batch.Slots > 0 || given < a.hostCPUs() {
		s.CPUs = given
	}
	if limit := c.limit(); limit > 0 {
		s.Memory = a.guestMemory(c, limit, s.CPUs)
		if even := s.Memory / (2 * farm.MiB) * (2 * farm.MiB); even >= farm.MinMemory {
			s.Memory = even // so that pages of 2 MiB can hold it
		}
	}
	return s
}

// hostCPUs is how many threads the host has: a caller that may use all of them was not confined.
func (a *Agent) hostCPUs() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.topo.Online.Len()
}

// guestMemory is the largest guest that the caller may have within limit. The VM of a batch job runs in the job's own
// control groups, whose limit counts what QEMU needs beside its guest; that of any other caller does not. Where a batch
// system has no control groups it adds up the job's processes, of which the wrapper is one.
func (a requests) guestMemory(c Caller, limit farm.Bytes, vcpus int) farm.Bytes {
	if c.Batch.System == "" {
		return limit / farm.MiB * farm.MiB
	}
	if len(c.Batch.Cgroups) == 0 {
		limit -= min(limit, farm.NeedOfWrapper)
	}
	return farm.GuestWithin(limit, vcpus, strings.HasPrefix(a.accelerator(), "tcg"))
}

// jobEnds is when the batch system will end the job, if it told.
func (a requests) jobEnds(b farm.Allotment) time.Time {
	if told, ok := a.lookups.Recall(b); ok && b.Ends.IsZero() {
		return told.Ends
	}
	return b.Ends
}
