package agent

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/agent/filesystems"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/mounts/mountstest"
	"github.com/grange-project/grange/internal/procstat"
)

// drainFS asks an agent for a drain, as an administrator does.
func (f *farmhouse) drainFS(d api.FileSystemDrain) api.FileSystemDrain {
	f.Helper()
	body, _ := json.Marshal(d)
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "/v1/file-systems/drains", bytes.NewReader(body))
	var out api.FileSystemDrain
	if err := (routes{f.agent}).postFileSystemDrain(w, r, admin); err != nil {
		f.Fatal(err)
	} else if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		f.Fatal(err)
	}
	return out
}

func (f *farmhouse) resumeFS(query string, c Caller) error {
	r := httptest.NewRequest("DELETE", "/v1/file-systems/drains?name="+query, nil)
	return routes{f.agent}.deleteFileSystemDrain(httptest.NewRecorder(), r, c)
}

// onHung is a caller that has a directory open of a file system whose server never answers.
func (f *farmhouse) onHung(h *mountstest.Hung, batchJob string) (Caller, api.JobRequest) {
	f.Helper()
	c := f.caller(batchJob)
	start, err := procstat.Started(h.Thread)
	if err != nil {
		f.Fatal(err)
	}
	c.PID, c.Start = h.Thread, start
	return c, api.JobRequest{Binds: []api.Bind{{Target: "/data", FD: h.FD}}}
}

// TestFileSystemDrain: no VM with directories of a drained file system starts, until that ends; those that run are
// told, across a restart of the agent. That its server hangs holds nothing up.
func TestFileSystemDrain(t *testing.T) {
	h := mountstest.Mount(t)
	f := newFarmhouse(t)
	c, r := f.onHung(h, "")
	runs := f.mustAsk(c, r)
	runs.until(api.EventRunning)
	if d := f.drainFS(api.FileSystemDrain{Name: mountstest.Source, Reason: "new disks"}); len(d.VMs) != 1 ||
		d.VMs[0].Name != vmName(runs.id) {
		t.Errorf("those that run: %+v", d.VMs)
	}
	f.close()
	f.open()
	if d := f.drainFS(api.FileSystemDrain{Name: mountstest.Source, Reason: "new disks"}); len(d.VMs) != 1 {
		t.Errorf("after a restart: %+v", d.VMs)
	}
	r.NoWait = true
	refused := f.mustAsk(c, r)
	for e := range refused.events {
		if e.Problem != nil && e.Problem.Type != "grange:"+string(filesystems.CodeDrained) {
			t.Errorf("%+v", e.Problem)
		}
	}
	r.NoWait = false
	waits := f.mustAsk(c, r)
	waits.until(api.EventWaiting)
	if d := f.drainFS(api.FileSystemDrain{Name: mountstest.Source, Reason: "new disks"}); len(d.VMs) != 1 {
		t.Errorf("one that waits is waited for: %+v", d.VMs)
	}
	f.agent.vmMadeFor(runs.id).cancel(errGivenBack) // this host may have two CPUs only
	other := f.mustAsk(f.caller(""), api.JobRequest{})
	other.until(api.EventRunning)
	other.done()
	if err := f.resumeFS(mountstest.Source, Caller{UID: 12345}); !farm.IsKind(err, farm.Denied) {
		t.Errorf("a user ended the drain: %v", err)
	}
	if err := f.resumeFS(mountstest.Source, admin); err != nil {
		t.Fatal(err)
	}
	waits.until(api.EventRunning)
	waits.done()
}

// TestFileSystemDeadline: VMs that use a drained file system end at the deadline, with the reason. Others go on.
func TestFileSystemDeadline(t *testing.T) {
	h := mountstest.Mount(t)
	f := newFarmhouse(t)
	f.agent.jobs.Go(f.agent.watch.watchDisks)
	other := f.mustAsk(f.caller(""), api.JobRequest{})
	other.until(api.EventRunning)
	runs := f.mustAsk(f.onHung(h, ""))
	runs.until(api.EventRunning)
	past := time.Now().Add(-time.Second)
	f.drainFS(api.FileSystemDrain{Name: "disks", Match: api.FileSystemMatch{Source: "server:*"}, Reason: "new disks",
		Deadline: &past})
	var last api.JobEvent
	for e := range runs.events {
		last = e
	}
	if last.Event != api.EventLost || last.Problem.Type != "grange:"+string(filesystems.CodeDrained) ||
		!strings.Contains(last.Problem.Detail, "disks: new disks") {
		t.Errorf("%+v", last)
	}
	if other.job.ctx.Err() != nil {
		t.Error("a VM without directories of it ended")
	}
	other.done()
}

// TestTaskOfDrainedFileSystem: a task of a batch job enters where the job uses the file system already, and is refused
// where it would be the first.
func TestTaskOfDrainedFileSystem(t *testing.T) {
	h := mountstest.Mount(t)
	f := newFarmhouse(t)
	c, r := f.onHung(h, "7")
	first := f.mustAsk(f.caller("7"), api.JobRequest{})
	first.until(api.EventRunning)
	f.drainFS(api.FileSystemDrain{Name: mountstest.Source})
	if _, err := f.ask(c, r); !farm.IsCode(err, filesystems.CodeDrained) {
		t.Errorf("the first task with directories of it: %v", err)
	}
	if err := f.resumeFS(mountstest.Source, admin); err != nil {
		t.Fatal(err)
	}
	second := f.mustAsk(c, r)
	second.until(api.EventRunning)
	f.drainFS(api.FileSystemDrain{Name: mountstest.Source})
	third := f.mustAsk(c, r)
	third.until(api.EventRunning)
	third.done()
	second.done()
	first.done()
}

// TestServersFileSystemDrain: what the server drains comes with the wanted list, and goes with it.
func TestServersFileSystemDrain(t *testing.T) {
	f := newFarmhouse(t)
	f.agent.Cloud.Want(fleet.WantedList{FileSystems: []api.FileSystemDrain{{Name: "work"}}})
	if all := f.agent.drains.List(); len(all) != 1 || all[0].Name != "work" || !all[0].Fleet {
		t.Errorf("%+v", all)
	}
	f.agent.Cloud.Want(fleet.WantedList{})
	if all := f.agent.drains.List(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}
