package agent

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/vmimage"
)

func TestHasWatchdog(t *testing.T) {
	for _, c := range []struct {
		on   bool
		kind vmimage.Kind
		want bool
	}{
		{true, vmimage.Disk, true}, {true, vmimage.Kernel, false}, {false, vmimage.Disk, false},
	} {
		if got := hasWatchdog(config.Heartbeat{Watchdog: c.on}, vmimage.Image{Kind: c.kind}); got != c.want {
			t.Errorf("watchdog = %v, an image of kind %s: %v", c.on, c.kind, got)
		}
	}
}

// TestStops looks at a VM every tick, but for what each look says; the last one is when its watchdog has run out.
func TestStops(t *testing.T) {
	const tick = 5 * time.Second
	type look struct {
		more, asleep time.Duration // since the look before: beyond a tick, and while the host was suspended
		stopped      bool
	}
	for name, c := range map[string]struct {
		looks []look
		want  bool
	}{
		"never":                     {[]look{{}, {}, {}}, false},
		"the first look":            {nil, false},
		"is stopped":                {[]look{{}, {stopped: true}}, true},
		"was at the last look":      {[]look{{stopped: true}, {}}, true},
		"was some time before":      {[]look{{stopped: true}, {}, {}}, false},
		"the host was suspended":    {[]look{{}, {asleep: time.Hour}}, true},
		"it was long ago":           {[]look{{asleep: time.Hour}, {}, {}}, false},
		"the agent was stopped":     {[]look{{}, {more: time.Minute}}, true},
		"the agent is a bit late":   {[]look{{}, {more: time.Second}}, false},
		"stopped before the agent":  {[]look{{stopped: true}, {more: time.Minute}}, true},
		"between two looks, unseen": {[]look{{}, {more: -tick / 2}}, false},
	} {
		now := clocks{monotonic: time.Hour, boot: 2 * time.Hour}
		var s stops
		lately := s.look(now, tick, false)
		for _, l := range c.looks {
			now.monotonic += tick + l.more
			now.boot += tick + l.more + l.asleep
			lately = s.look(now, tick, l.stopped)
		}
		if lately != c.want {
			t.Errorf("%s: %v, want %v", name, lately, c.want)
		}
	}
}

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
	f.agent.guestFile = disk // any file will do
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
			return codeOf(o.Reason) == string(farm.CodeGuestUnresponsive) && strings.Contains(o.Reason, "watchdog") &&
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
	for name, before := range map[string]func(f *farmhouse, m *machine){
		"its process was frozen a moment ago": func(_ *farmhouse, m *machine) {
			m.pulse.mu.Lock()
			defer m.pulse.mu.Unlock()
			m.pulse.stops.look(readClocks(), time.Second, true)
		},
		"the site wants no watchdogs": func(f *farmhouse, _ *machine) {
			c := f.agent.config()
			c.Heartbeat.Watchdog = false
			f.agent.Reload(c)
		},
	} {
		f := withFullImage(t)
		f.heartbeat(0, config.HeartbeatEnd)
		x := f.mustAsk(f.caller(""), api.JobRequest{Image: fullImage})
		vm := x.until(api.EventRunning)
		before(f, x.job.vm.current())
		f.agent.watchdog(vm.ID)
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
	f.agent.watchdog(vm.ID) // an event that was on its way
	if vms := f.vmsFor(admin); len(vms) != 1 || !responsive(vms[0]) {
		t.Errorf("suspended: %+v", vms)
	}
	f.agent.watchdog(api.NewID()) // of a machine that is not there
	f.agent.rebooted(api.NewID())
}

// TestWatchdogPace has a guest reboot again and again, each time with a watchdog that runs out at once: few of them are
// reported.
func TestWatchdogPace(t *testing.T) {
	f := withFullImage(t)
	w := f.cloud()
	w.Image = fullImage
	f.want(w)
	f.sees("ready", w, func(o fleet.Observed) bool { return o.Ready })
	m := f.agent.fleetByID(w.ID).current()
	var changes atomic.Int64
	m.pulse.changing.Lock()
	changed := m.pulse.changed
	m.pulse.changed = func(unresponsive bool) { changes.Add(1); changed(unresponsive) }
	m.pulse.changing.Unlock()
	const times = 1000
	for range times {
		f.agent.watchdog(w.ID)
		f.agent.rebooted(w.ID)
	}
	if n := changes.Load(); n == 0 || n > times/2 {
		t.Errorf("%d watchdogs, each with a reboot, are %d changes", times, n)
	}
}
