package agent

import (
	"net/http"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/filesystems"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/sleep"
)

// uses is what network file systems the jobs of a VM have directories of.
func (v *vm) uses() (all []filesystems.Used) {
	if r := v.recordNow(); r.Allocation != nil { // its directories stay between its steps
		all = append(all, r.Uses)
	}
	for _, j := range v.inside() {
		all = append(all, j.record.Uses)
	}
	return all
}

// awaitFileSystems lets no VM begin while a file system of its directories is drained. A batch job waits for as long as
// for room: all hosts are drained.
func (v *making) awaitFileSystems() error {
	for began := time.Now(); ; {
		err := v.agent.drains.Refusal(v.uses())
		if err == nil || v.request.NoWait || v.waitedTooLong(began) {
			return err
		}
		v.publishWaiting(err.Error())
		if err := sleep.For(v.ctx, minimumPause); err != nil {
			return err
		}
	}
}

// drainsFromTask is why a task may not enter a VM: it would be the first there to use a file system that is drained.
func (v *vm) drainsFromTask(j *job) error {
	if v.agent.drains.Refusal(v.uses()) != nil {
		return nil
	}
	return v.agent.drains.Refusal([]filesystems.Used{j.record.Uses})
}

// postFileSystemDrain begins a drain, or changes one, and returns the VMs that still have directories of the file
// system. Asking again is how one waits for the rest.
func (a routes) postFileSystemDrain(w http.ResponseWriter, r *http.Request, c Caller) error {
	if !c.admin() {
		return drainDenied()
	}
	var d api.FileSystemDrain
	if err := a.decode(w, r, c, &d); err != nil {
		return err
	}
	d, err := filesystems.Complete(d, time.Now())
	if err == nil {
		d, err = a.drains.Put(d)
	}
	if err != nil {
		return err
	}
	d.VMs = a.usersOf(d)
	return answer(w, d)
}

func (a routes) getFileSystemDrains(w http.ResponseWriter, _ *http.Request, c Caller) error {
	all := a.drains.List()
	for i := range all {
		if c.admin() {
			all[i].VMs = a.usersOf(all[i])
		}
	}
	return answer(w, all)
}

func (a routes) deleteFileSystemDrain(w http.ResponseWriter, r *http.Request, c Caller) error {
	if !c.admin() {
		return drainDenied()
	}
	name := r.URL.Query().Get("name")
	if err := a.drains.End(name); err != nil {
		return err
	}
	return answer(w, api.FileSystemDrain{Name: name})
}

// hostFileSystems are what the server is told of.
func (a *Agent) hostFileSystems() []farm.HostFileSystem {
	drains := a.drains.List() // first: a VM that begins later sees them
	var vms [][]filesystems.Used
	for _, v := range a.all() {
		if v.recordNow().Plan.VCPUs != nil {
			vms = append(vms, v.uses())
		}
	}
	return filesystems.Mounted(drains, vms)
}

// usersOf are the VMs that have directories of a drained file system. Those that wait for its end are none of them.
func (a *Agent) usersOf(d api.FileSystemDrain) (out []api.FileSystemUser) {
	for _, v := range a.all() {
		if r := v.recordNow(); r.Plan.VCPUs != nil && filesystems.Uses(v.uses(), d) {
			out = append(out, api.FileSystemUser{Name: r.Name, User: farm.Clean(r.User, mostDrainReason), Batch: v.key})
		}
	}
	return out
}
