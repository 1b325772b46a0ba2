package agent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/agent/cloud"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/breaker"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/program"
)

func needsRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it gives files away")
	}
}

// ownerOf is whom the scratch disk of a VM belongs to.
func (f *farmhouse) ownerOf(name string) uint32 {
	f.Helper()
	info, err := os.Stat(filepath.Join(f.agent.machines.DisksDir(), name, "scratch.raw"))
	if err != nil {
		f.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

// scratched runs a job with a disk, and returns the user of its VM.
func (f *farmhouse) scratched() (*task, uint32) {
	f.Helper()
	task := f.mustAsk(f.caller(""), api.JobRequest{Scratch: new(uint64(16 * farm.MiB))})
	vm := task.until(api.EventRunning)
	uid := task.job.vm.view(nil).Applied.QEMUUID
	if owner := f.ownerOf(vm.Name); owner != uid || !f.agent.config().VMUIDs.Has(uid) {
		f.Errorf("the disk of a VM that runs as user %d is user %d's", uid, owner)
	}
	return task, uid
}

// TestUsersOfVMs: no two VMs run as the same user, jobs' and cloud VMs, also of an agent that was restarted; disks are
// theirs while they run, and the agent's own afterwards.
func TestUsersOfVMs(t *testing.T) {
	needsRoot(t)
	f := newFarmhouse(t)
	seen := map[uint32]bool{}
	is := func(uid uint32) {
		t.Helper()
		if uid == 0 || seen[uid] {
			t.Errorf("user %d runs two VMs; seen are %v", uid, seen)
		}
		seen[uid] = true
	}
	first, uid := f.scratched()
	is(uid)
	w, other := f.cloud(), f.cloud()
	f.want(w)
	f.seesState(w, farm.VMRunning)
	is(f.ownerOf(cloud.Name(w.ID)))
	first.done()
	f.close()
	f.open()
	if owner := f.ownerOf(cloud.Name(w.ID)); !seen[owner] {
		t.Errorf("a VM that runs has lost its disk to user %d", owner)
	}
	had := f.ownerOf(cloud.Name(w.ID))
	f.agent.mu.Lock()
	f.agent.cfg.VMUIDs = farm.UIDs{First: had, Last: had + 1}
	f.agent.mu.Unlock()
	f.want(w, other)
	f.seesState(other, farm.VMRunning)
	if f.ownerOf(cloud.Name(other.ID)) == f.ownerOf(cloud.Name(w.ID)) {
		t.Error("an agent that was restarted gives a user to a second VM")
	}
	w.Power = string(farm.PowerOff)
	f.want(w, other)
	f.seesState(w, farm.VMStopped)
	if owner := f.ownerOf(cloud.Name(w.ID)); owner != 0 {
		t.Errorf("the disk of a VM that is stopped is user %d's", owner)
	}
}

// TestEndedUnseen: disks of a VM that ended while no agent was there are the agent's own again.
func TestEndedUnseen(t *testing.T) {
	needsRoot(t)
	f := newFarmhouse(t)
	w := f.cloud()
	f.want(w)
	f.seesState(w, farm.VMRunning)
	f.close()
	if owner := f.ownerOf(cloud.Name(w.ID)); owner == 0 {
		t.Fatal("no user has the disk")
	}
	f.host.PowerOff(w.ID)
	f.open()
	for _, v := range f.agent.Cloud.All() {
		if owner := f.ownerOf(v.Name); v.Current() == nil && owner != 0 {
			t.Errorf("the disk is still user %d's", owner)
		}
	}
}

// TestNoUserLeft: a process, a disk and a VM that has neither yet keep a user each. Who comes then is told that the
// host is full, which is nobody's fault.
func TestNoUserLeft(t *testing.T) {
	needsRoot(t)
	f := newFarmhouse(t)
	const first = 2113929216
	cmd := exec.Command("/bin/sleep", "600") // what a guest that broke out has left behind
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: first, Gid: first}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if _, err := f.agent.machines.Areas.Jobs.Scratch(t.Context(), "grange-left", 16*farm.MiB); err != nil {
		t.Fatal(err)
	}
	if err := f.agent.machines.Areas.Jobs.Give("grange-left", first+1, first+1); err != nil {
		t.Fatal(err)
	}
	f.agent.mu.Lock()
	f.agent.cfg.VMUIDs = farm.UIDs{First: first, Last: first + 2}
	f.agent.mu.Unlock()
	u, err := f.agent.machines.TakeUser(t.Context(), "grange-a", 0)
	if err != nil || u.Own != first+2 || u.UID != first+2 || u.Group == 0 {
		t.Fatalf("%+v, %v", u, err)
	}
	task := f.mustAsk(f.caller(""), api.JobRequest{})
	if why := task.failed(); !strings.Contains(why, string(machine.CodeNoVMUID)) &&
		!strings.Contains(why, "user IDs of VMs") {
		t.Errorf("a job without a user: %s", why)
	}
	_, err = f.agent.machines.TakeUser(t.Context(), "grange-b", 0)
	if !farm.IsCode(err, machine.CodeNoVMUID) || machine.BlameFor(err) != breaker.Nobody ||
		machine.WorthAnotherTry(err) {
		t.Errorf("%v", err)
	}
	f.agent.machines.ReturnUser("grange-a")
	if _, err = f.agent.machines.TakeUser(t.Context(), "grange-b", 0); err != nil {
		t.Error(err)
	}
}

// TestUsersOfOthers: where the range is not the VMs' alone none starts, and the host says why.
func TestUsersOfOthers(t *testing.T) {
	f := newFarmhouse(t)
	f.close()
	f.names = names.New(func(_ context.Context, c program.Call) ([]byte, error) {
		return fmt.Appendf(nil, "alice:x:%s:0::/:/bin/sh\n", c.Args[1]), nil
	})
	f.open()
	w := f.cloud()
	f.want(w)
	f.sees("a reason", w, func(o fleet.Observed) bool {
		return strings.HasPrefix(o.Reason,
			string(farm.CodeUIDsTaken))
	})
	if text := f.agent.machines.UsersWarning(); !strings.Contains(text, "alice") {
		t.Errorf("the host says %q", text)
	}
	if f.machines() != 0 {
		t.Error("a VM runs")
	}
	_, err := f.agent.machines.TakeUser(t.Context(), "x", 0)
	if machine.BlameFor(err) != breaker.TheHost {
		t.Errorf("%v is not the host's fault", err)
	}
}

// closedHost lets no user of a VM open what QEMU needs.
type closedHost struct{ machine.Hypervisor }

func (closedHost) OwnGroup(_ context.Context, _, tracked uint32) (uint32, string, error) {
	return 0, fmt.Sprintf("closed to group %d", tracked), nil
}

// TestSharedUser: where it cannot be VMs run as QEMU's own user, and the host says so.
func TestSharedUser(t *testing.T) {
	f := newFarmhouse(t)
	f.agent.machines.Hyper = closedHost{f.agent.hyper}
	task := f.mustAsk(f.caller(""), api.JobRequest{})
	task.until(api.EventRunning)
	if uid := task.job.vm.view(nil).Applied.QEMUUID; uid != 0 {
		t.Errorf("the VM has user %d", uid)
	}
	if text := f.agent.machines.UsersWarning(); !strings.Contains(text, "closed to group 0") {
		t.Errorf("the host says %q", text)
	}
}
