package agent

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

// oneCPU is what a guest reports of a machine with one CPU and so much memory.
func oneCPU(memory farm.Bytes) farm.GuestView {
	one := farm.NewCPUSet(0)
	return farm.GuestView{Sockets: []farm.CPUSet{one}, Cores: []farm.CPUSet{one}, Clock: "kvm-clock",
		Nodes: []farm.GuestNode{{CPUs: one, Memory: memory}}}
}

// TestGuestViewIsShown: by the VM, also to the next agent; a difference by the host, too, and once to whoever waits for
// the job.
func TestGuestViewIsShown(t *testing.T) {
	for name, c := range map[string]struct {
		view    *farm.GuestView
		differs bool
	}{
		"an older guest": {nil, false},
		"as planned":     {new(oneCPU(100 * farm.MiB)), false},
		"another":        {new(oneCPU(8 * farm.GiB)), true},
	} {
		f := newFarmhouse(t)
		f.guests.view = c.view
		x := f.mustAsk(f.caller(""), api.JobRequest{})
		var told []string
		for e := range x.events {
			if e.Code == api.CodeGuestDiffers {
				told = append(told, e.Message)
			}
			if e.Event == api.EventRunning {
				break
			}
		}
		if (len(told) == 1) != c.differs || c.differs && !strings.Contains(told[0], "8G on node 0, planned are 128M") {
			t.Errorf("%s: told %q", name, told)
		}
		shown := func(vm api.VM) bool {
			if c.view == nil || vm.Guest == nil {
				return c.view == nil && vm.Guest == nil
			}
			return vm.Guest.Threads == 1 && (len(vm.Guest.Differs) == 1) == c.differs &&
				vm.Guest.Nodes[0].Memory == uint64(c.view.Nodes[0].Memory)
		}
		f.shows(name, shown)
		var host api.Host
		w := httptest.NewRecorder()
		if err := (routes{f.agent}).getHost(w, httptest.NewRequest("GET", "/v1/host", nil), admin); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(w.Body.Bytes(), &host); err != nil || (host.Differing == 1) != c.differs {
			t.Errorf("%s: %v; the host counts %d", name, err, host.Differing)
		}
		f.close()
		f.open()
		f.shows(name+", to the next agent", shown)
	}
}
