package agent

import (
	"context"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/guest"
)

// fleetGuest is what the guest of a cloud VM is told when it is up: its job, which lives until the VM is powered off. full says that the
// image is a full system, whose cloud-init has the name, the address, the keys and the user data from the seed. The job's ID is the VM's.
func (a *Agent) fleetGuest(w fleet.WantedVM, full bool) (*guest.Job, error) {
	return &guest.Job{ID: w.ID}, nil
}

// powerOff asks the guest to end in order. An error means that it was not told: its ACPI button is what is left.
func (m *machine) powerOff(ctx context.Context) error {
	return m.control.say(ctx, guest.ControlMessage{PowerOff: true})
}
