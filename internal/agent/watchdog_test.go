package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
)

// fullImage is the name of an image that a host gets besides its micro image.
const fullImage = "full"

// withFullImage is a farmhouse with a full image, whose VMs have a watchdog.
func withFullImage(t *testing.T) *farmhouse {
	f := newFarmhouse(t)
	disk := filepath.Join(f.dir, "full.raw")
	sector := make([]byte, 1<<20)
	sector[510], sector[511] = 0x55, 0xaa
	if err := os.WriteFile(disk, sector, 0o644); err != nil {
		t.Fatal(err)
	}
	f.agent.guestFile, f.agent.Cloud.GuestFile = disk, disk // any file will do
	if _, err := f.agent.images.Import(t.Context(), fullImage, disk, nil); err != nil {
		t.Fatal(err)
	}
	f.heartbeat(0, config.HeartbeatReport) // nothing but the watchdog makes a guest unresponsive
	return f
}

func responsive(vm api.VM) bool { return vm.Unresponsive == nil && vm.Watchdog == nil }

// TestWatchdogOfJob has the watchdog of a job's VM run out.
func TestWatchdogOfJob(t *testing.T) {
	for _, action := range []config.HeartbeatAction{config.HeartbeatReport, config.HeartbeatRestart,
		config.HeartbeatEnd} {
		f := withFullImage(t)
		f.heartbeat(0, action)
		x := f.mustAsk(f.caller(""), api.JobRequest{Image: fullImage})
		vm := x.until(api.EventRunning)
		f.host.Watchdog(vm.ID)
		if action == config.HeartbeatReport {
			x.until(api.EventWarning)
			f.shows("its watchdog", func(vm api.VM) bool { return unresponsiveVM(vm) && vm.Watchdog != nil })
			f.host.Reboot(vm.ID)
			f.shows("that it has rebooted", func(vm api.VM) bool { return responsive(vm) && vm.State == "running" })
			x.done()
			continue
		}
		if p := x.lost(); p.Type != "grange:"+string(farm.CodeGuestUnresponsive) ||
			!strings.Contains(p.Detail, "watchdog") {
			t.Errorf("%s: %+v", action, p)
		}
		<-x.job.over
		if n := f.machines(); n != 0 {
			t.Errorf("%s: %d machines are left", action, n)
		}
	}
}

// TestWatchdogOfCloudVM has the watchdog of a cloud VM run out.
func TestWatchdogOfCloudVM(t *testing.T) {
	for action, state := range map[config.HeartbeatAction]farm.VMState{
		config.HeartbeatReport: farm.VMRunning, config.HeartbeatRestart: "", config.HeartbeatEnd: farm.VMFailed,
	} {
		f := withFullImage(t)
		f.heartbeat(0, action)
		w := f.cloud()
		w.Image = fullImage
		f.want(w)
		f.sees("ready", w, func(o fleet.Observed) bool { return o.Ready })
		f.host.Watchdog(w.ID)
		f.sees(string(action), w, func(o fleet.Observed) bool {
			return reasonCode(o.Reason) == string(farm.CodeGuestUnresponsive) && strings.Contains(o.Reason, "watchdog") &&
				(state == "" || o.State == string(state))
		})
		starts := 1
		if action == config.HeartbeatRestart {
			starts = 2
			f.sees("it runs again", w, func(o fleet.Observed) bool { return o.Ready && f.guests.started() == starts })
			f.shows("no watchdog", responsive)
		}
		if n := f.guests.started(); n != starts {
			t.Errorf("%s: the VM was started %d times", action, n)
		}
	}
}

// TestWatchdogOfGuestThatAnswers: a guest whose watchdog ran out is responsive again as soon as it answers.
func TestWatchdogOfGuestThatAnswers(t *testing.T) {
	f := withFullImage(t)
	f.heartbeat(time.Minute, config.HeartbeatReport)
	x := f.mustAsk(f.caller(""), api.JobRequest{Image: fullImage})
	vm := x.until(api.EventRunning)
	f.guests.hang(true)
	f.host.Watchdog(vm.ID)
	f.shows("its watchdog", func(vm api.VM) bool { return unresponsiveVM(vm) && vm.Watchdog != nil })
	f.heartbeat(time.Second, config.HeartbeatReport)
	f.guests.hang(false)
	f.shows("an answer", func(vm api.VM) bool {
		return vm.Heard != nil && vm.Unresponsive == nil &&
			vm.Watchdog == nil
	})
}

// TestWatchdogPassedOver has watchdogs run out that no guest is to blame for, or that the site wants nothing to do
// with.
func TestWatchdogPassedOver(t *testing.T) {
	for name, before := range map[string]func(f *farmhouse, v *vm){
		"it was stopped a moment ago": func(f *farmhouse, v *vm) {
			for _, suspend := range []bool{true, false} {
				if err := v.pause(t.Context(), suspend); err != nil {
					t.Fatal(err)
				}
				f.agent.watch.watchdog(v.current().ID)
			}
		},
		"the site wants no watchdogs": func(f *farmhouse, _ *vm) {
			c := f.agent.config()
			c.Heartbeat.Watchdog = false
			f.agent.Reload(c)
		},
	} {
		f := withFullImage(t)
		f.heartbeat(0, config.HeartbeatEnd)
		x := f.mustAsk(f.caller(""), api.JobRequest{Image: fullImage})
		vm := x.until(api.EventRunning)
		before(f, x.job.vm)
		f.agent.watch.watchdog(vm.ID)
		if vms := f.vmsFor(admin); len(vms) != 1 || !responsive(vms[0]) || vms[0].State != "running" {
			t.Errorf("%s: %+v", name, vms)
		}
	}
	f := withFullImage(t)
	x := f.mustAsk(f.caller(""), api.JobRequest{Image: fullImage})
	vm := x.until(api.EventRunning)
	if err := x.job.vm.pause(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	f.agent.watch.watchdog(vm.ID) // an event that was on its way
	if vms := f.vmsFor(admin); len(vms) != 1 || !responsive(vms[0]) {
		t.Errorf("suspended: %+v", vms)
	}
	f.agent.watch.watchdog(api.NewID()) // of a machine that is not there
	f.agent.watch.rebooted(api.NewID())
}
