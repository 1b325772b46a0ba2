package agent

import "github.com/grange-project/grange/api/fleet"

// fleetVMs are the server's VMs that are on this host, as they were wanted last.
func (a *Agent) fleetVMs() []fleet.WantedVM { return nil }

// fleetMachine finds the machine of a VM of the server; nil when it does not run here.
func (a *Agent) fleetMachine(id string) (*machine, fleet.WantedVM) { return nil, fleet.WantedVM{} }
