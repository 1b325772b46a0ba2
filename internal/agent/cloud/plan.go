package cloud

import (
	"fmt"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/ledger"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/vmimage"
	"github.com/grange-project/grange/internal/wire"
)

// planner plans as the server said, or here where it said nothing.
func (h *Host) planner(shape farm.Shape, exact *api.Plan) (ledger.Planner, error) {
	if exact == nil {
		request := h.Machines.NUMARequest(shape, h.Machines.AllCPUs())
		return func(room numa.Room, own farm.CPUSet) (farm.Plan, error) {
			r := request
			if !own.Empty() {
				r.Allowed = own
			}
			return numa.Plan(room, r)
		}, nil
	}
	plan, err := wire.ParsePlan(*exact)
	if err != nil {
		return nil, err
	}
	if len(plan.VCPUs) != shape.CPUs || plan.Memory() != shape.Memory {
		return nil, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadPlan, Hint: "see the server's log",
			Message: fmt.Sprintf("the server's plan has %d CPUs and %v, and the VM's shape %d and %v", len(plan.VCPUs),
				plan.Memory(), shape.CPUs, shape.Memory)}
	}
	return func(room numa.Room, _ farm.CPUSet) (farm.Plan, error) {
		_, err := room.Take(plan)
		return plan, err
	}, nil
}

// charge is what a cloud VM is charged. What its owner may have is its project's quota.
func (v *VM) charge(image vmimage.Image, shape farm.Shape) ledger.Charge {
	return machine.DiskCharge(v.Name, ledger.CloudFiles, image, shape, 0,
		machine.VolumesOf(v.host.config().Areas.Cloud))
}
