package server

import (
	"fmt"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// endVM enters that nothing of a VM is left on any host: as its host said, or because it never had one, or was lost.
// Its name, address and quota are free from then on. Where a batch system still holds capacity for it the row stays
// until that is given back.
func (s *Server) endVM(t *store.Tx, vm farm.VM, why string) error {
	if vm.Reservation != "" {
		o := vm.Observed
		o.State, o.Since = farm.VMGone, s.now().UTC()
		return t.SetVMObserved(vm.ID, o)
	}
	if err := t.DeleteVM(vm.ID); err != nil {
		return err
	}
	return t.Audit(action.Entry(action.Itself, s.now().UTC(), action.GoneVM, action.VMTarget(vm), action.Done,
		why+"; "+essentials(vm)))
}

// essentials is what stays of a VM when its row is gone: the audit log keeps it.
func essentials(vm farm.VM) string {
	text := fmt.Sprintf("ID %s, of %s, made %s, image %s, %s, %v of memory", vm.ID, vm.Owner, action.When(vm.Created),
		vm.Image, farm.Count(vm.Shape.CPUs, "CPU"), vm.Shape.Memory)
	if vm.Observed.CPUTime > 0 {
		text += fmt.Sprintf(", %v of CPU time", vm.Observed.CPUTime.Round(time.Second))
	}
	return text
}

// end is endVM for a VM that is to be deleted and has no host to say so.
func (c *call) end(vm farm.VM, why string) error {
	if vm.Reservation != "" {
		if err := c.SetVM(vm); err != nil {
			return err
		}
	}
	return c.s.endVM(c.Tx, vm, why)
}

// displace takes a lost VM's place away, so that it is placed anew with fresh disks. What its old host may still have
// of it is deleted there when that host is heard of again: the list of that host says so, for the VM is another host's
// by then.
func (c *call) displace(vm *farm.VM) error {
	vm.WantBuild()
	vm.Wanted.Fresh = vm.Wanted.Builds
	vm.Wanted.Power = farm.PowerOn
	vm.Host, vm.Plan, vm.Waiting, vm.Resize = "", farm.Plan{}, "", nil
	vm.Observed = farm.Observed{}
	if err := c.SetVMPlace(*vm); err != nil {
		return err
	}
	return c.SetVMObserved(vm.ID, vm.Observed)
}
