package agent

import (
	"strings"
	"testing"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/wire"
)

// TestCloudIsRefused: at once, with a reason that begins with its code, and never again by the host itself.
func TestCloudIsRefused(t *testing.T) {
	f := newFarmhouse(t)
	first := f.cloud()
	f.want(first)
	plan := f.seesState(first, farm.VMRunning).Plan
	for code, spoil := range map[farm.Code]func(w *fleet.WantedVM){
		farm.CodeNoRoom:     func(w *fleet.WantedVM) { w.Plan = plan },
		farm.CodeNoImage:    func(w *fleet.WantedVM) { w.Image = "other" },
		farm.CodeNoBridge:   func(w *fleet.WantedVM) { w.Bridge, w.Address = "nobridge", "10.1.2.3/24" },
		farm.CodeNotCarried: func(w *fleet.WantedVM) { w.Network, w.Address = "vlan:120", "10.1.2.3/24" },
		farm.CodeBadShape:   func(w *fleet.WantedVM) { w.Shape.CPUs = 0 },
		farm.CodeBadPlan: func(w *fleet.WantedVM) {
			other := *plan
			other.VCPUs = append(other.VCPUs[:1:1], "1")
			w.Plan = &other
		},
		wire.CodeBadWire: func(w *fleet.WantedVM) {
			other := *plan
			other.VCPUs = []string{"x"}
			w.Plan = &other
		},
	} {
		t.Run(string(code), func(t *testing.T) {
			w := f.cloud()
			spoil(w)
			f.want(first, w)
			if o := f.seesState(w, farm.VMFailed); !strings.HasPrefix(o.Reason, string(code)+": ") {
				t.Errorf("%q", o.Reason)
			}
			if code == farm.CodeNoImage &&
				!strings.Contains(f.seesState(w, farm.VMFailed).Reason, `image "other" is not on this host`) {
				t.Error("the reason does not say so")
			}
			f.close()
			f.open()
			f.seesState(w, farm.VMFailed)
			f.seesState(first, farm.VMRunning)
			f.want(first) // it was placed elsewhere
			f.sees("nothing of it", w, func(o fleet.Observed) bool { return o.ID == "" })
		})
	}
	w := f.cloud()
	w.Plan = plan
	f.want(first, w)
	f.seesState(w, farm.VMFailed)
	first.Power = string(farm.PowerDeleted)
	f.want(first, w)
	f.seesState(first, farm.VMGone)
	f.sees("no second try", w, func(o fleet.Observed) bool { return o.State == string(farm.VMFailed) })
	w.Boots, w.Image = 1, "other"
	f.want(first, w)
	f.sees("that the second order is refused, too", w, func(o fleet.Observed) bool {
		return o.State == string(farm.VMFailed) && strings.HasPrefix(o.Reason, string(farm.CodeNoImage)) && o.Boots == 1
	})
	w.Boots, w.Builds, w.Image = 2, 3, "micro"
	f.want(first, w)
	f.seesState(w, farm.VMRunning)
}

// TestCloudRefusedLate: a VM that finds its room, and then cannot be made, holds nothing, and is told as one that found
// none.
func TestCloudRefusedLate(t *testing.T) {
	f := newFarmhouse(t)
	listen := f.host.Refuse
	f.host.Refuse = func(m hyper.Machine) error {
		return &farm.Error{Kind: farm.NoCapacity, Code: hyper.CodeRefused, Message: "no pages"}
	}
	w := f.cloud()
	f.want(w)
	if o := f.seesState(w, farm.VMFailed); !strings.HasPrefix(o.Reason, "no-room: no pages") || o.Plan != nil {
		t.Errorf("%+v", o)
	}
	if _, holders, _ := f.agent.ledger.View(0); len(holders) != 0 {
		t.Errorf("it holds %v", holders)
	}
	f.host.Refuse = listen
	w.Boots++
	f.want(w)
	f.seesState(w, farm.VMRunning)
	w.Power = string(farm.PowerOff)
	f.want(w)
	f.seesState(w, farm.VMStopped)
	f.agent.images.Remove("micro", func(string) bool { return false })
	w.Power = string(farm.PowerOn)
	f.want(w)
	f.sees("a reason", w, func(o fleet.Observed) bool { return strings.Contains(o.Reason, "is not on this host") })
	f.close()
	f.rewrite("Failures", 5, func(r vmFile) bool { return r.Wanted.ID == w.ID })
	f.open()
	if o := f.seesState(w, farm.VMFailed); !strings.HasPrefix(o.Reason, "vm-wont-start: ") || o.Plan == nil {
		t.Errorf("%+v", o)
	}
}

// TestImageOfStoppedVMStays: its disks read through to it.
func TestImageOfStoppedVMStays(t *testing.T) {
	f := newFarmhouse(t)
	w := f.cloud()
	w.Power = string(farm.PowerOff)
	f.want(w)
	f.seesState(w, farm.VMStopped)
	if err := f.agent.images.Remove("micro", newImageRoutes(f.agent).InUse); !farm.IsCode(err, farm.CodeImageInUse) {
		t.Errorf("%v", err)
	}
}

// TestCloudResizeWithoutRoom: the VM stays what it is.
func TestCloudResizeWithoutRoom(t *testing.T) {
	f := newFarmhouse(t)
	w := f.cloud()
	f.want(w)
	f.seesState(w, farm.VMRunning)
	bigger := *w
	bigger.Builds, bigger.Shape.CPUs = 1, 1000
	f.want(&bigger)
	o := f.sees("a refusal", w, func(o fleet.Observed) bool {
		return strings.HasPrefix(o.Reason, "no-room: ") || strings.HasPrefix(o.Reason, "too-big: ")
	})
	if o.State != string(farm.VMRunning) || o.Builds != 0 || f.machines() != 1 {
		t.Errorf("%+v", o)
	}
	w.Builds, w.Shape.Memory = 2, uint64(160*farm.MiB)
	f.want(w)
	f.seesState(w, farm.VMRunning)
}
