package vm

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper/libvirt/libvirttest"
)

// TestWatchdog makes a cloud VM of an image whose only program starts the watchdog and then hangs.
func TestWatchdog(t *testing.T) {
	if os.Getenv(cloudConfigVar) != "" {
		testWatchdog(t)
		return
	}
	disk := make([]byte, 1<<20)
	copy(disk, libvirttest.StartsWatchdog)
	disk[510], disk[511] = 0x55, 0xaa
	file := filepath.Join(t.TempDir(), "hangs.raw")
	if err := os.WriteFile(file, disk, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Parallel()
	network := newNetwork(t, "watchdog", "link add br0 type bridge", "addr add 10.77.0.1/16 dev br0", "link set br0 up")
	cloudLab(t, network, "", nil, "import", "--name", "hangs", file)
}

func testWatchdog(t *testing.T) {
	c, err := config.ReadAgent(os.Getenv(cloudConfigVar))
	if err != nil {
		t.Fatal(err)
	}
	h, client := startCloudHost(t), api.NewClient(c.Socket)
	h.vm = fleet.WantedVM{ID: api.NewID(), Name: "web", Project: "atlas", Owner: "ann", Power: "on", Image: "hangs",
		Hostname: "web.example.org", Shape: fleet.Shape{CPUs: 1, Memory: uint64(64 * farm.MiB)}}
	ranOut := func(o fleet.Observed) bool {
		return strings.HasPrefix(o.Reason, string(farm.CodeGuestUnresponsive)+": ") &&
			strings.Contains(o.Reason, "watchdog")
	}
	runs := func(o fleet.Observed) bool { return o.State == string(farm.VMRunning) }
	h.want(t, power("on"), func(o fleet.Observed) bool { return runs(o) && ranOut(o) })
	if shown, err := client.Host(ctx(t)); err != nil || shown.Unresponsive != 1 {
		t.Errorf("the host shows %+v, %v", shown, err)
	}
	vms, err := client.VMs(ctx(t))
	if err != nil || len(vms) != 1 || vms[0].Watchdog == nil || vms[0].Unresponsive == nil {
		t.Fatalf("VMs: %+v, %v", vms, err)
	}

	c.Heartbeat.Action, c.StopTimeout = config.HeartbeatEnd, time.Second
	h.Reload(c)
	again := func(w *fleet.WantedVM) { w.Boots++ }
	// On a busy machine QEMU may be frozen before its guest has started the watchdog, which then runs out as it should.
	const tries = 3
	for try := 1; ; try++ {
		h.want(t, again, func(o fleet.Observed) bool { return runs(o) && o.Boots == h.vm.Boots })
		time.Sleep(libvirttest.WatchdogTime / 4)
		freeze(t, filepath.Join(filepath.Dir(c.Libvirt), "qemu", vms[0].Name+".pid"))
		now, _ := h.Cloud.Observed()
		if len(now) == 1 && runs(now[0]) && !ranOut(now[0]) {
			break
		}
		if try == tries {
			t.Fatalf("after its QEMU was frozen: %+v", now)
		}
	}

	h.becomes(t, again, func(o fleet.Observed) bool { return o.State == string(farm.VMFailed) && ranOut(o) })
	h.becomes(t, power("deleted"), isGone)
}

// becomes changes the VM, and waits until it is so; it may fail on the way.
func (h *cloudHost) becomes(t *testing.T, change func(w *fleet.WantedVM), so func(o fleet.Observed) bool) {
	t.Helper()
	change(&h.vm)
	h.Cloud.Want(fleet.WantedList{VMs: []fleet.WantedVM{h.vm}})
	for end := time.After(limit); ; {
		vms, changed := h.Cloud.Observed()
		if len(vms) == 1 && so(vms[0]) {
			return
		}
		select {
		case <-changed:
		case <-end:
			t.Fatalf("never seen; last %+v", vms)
		}
	}
}

// freeze stops a VM's QEMU for longer than its watchdog runs, and returns when that has run out since.
func freeze(t *testing.T, pidFile string) {
	text, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	syscall.Kill(pid, syscall.SIGSTOP)
	time.Sleep(20 * time.Second) // the agent looks every few seconds
	syscall.Kill(pid, syscall.SIGCONT)
	time.Sleep(10 * time.Second)
}
