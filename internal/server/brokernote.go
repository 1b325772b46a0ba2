package server

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/broker"
)

// brokerNote is what the loop saw last of a cell's batch system, decoded once for all VMs and hosts that one call
// shows: it has a line for each closed host.
func (c *views) brokerNote(cell string) (broker.Note, error) {
	if note, ok := c.seen.brokers[cell]; ok {
		return note, nil
	}
	note, err := broker.ReadNote(c.Tx, cell)
	if err != nil {
		return note, err
	}
	if c.seen.brokers == nil {
		c.seen.brokers = map[string]broker.Note{}
	}
	c.seen.brokers[cell] = note
	return note, nil
}

// brokerOf reports what the batch system of a host's cell makes of its closing.
func (c *views) brokerOf(v *HostView, cell farm.Cell) error {
	if cell.Broker == farm.BrokerGrange || cell.Broker == "" {
		return nil
	}
	note, err := c.brokerNote(cell.Name)
	if err != nil {
		return err
	}
	a, told := note.Hosts[v.ID]
	v.Jobs = a.Jobs
	switch {
	case a.Error != "":
		v.Warnings = append(v.Warnings, fmt.Sprintf("in %s: %s; tried again", cell.Broker, a.Error))
	case note.Error != "":
		v.Warnings = append(v.Warnings, fmt.Sprintf("%s: %s; tried again", cell.Broker, note.Error))
	case !told && v.State != HostOpen && v.State != HostSilent:
		v.Warnings = append(v.Warnings, fmt.Sprintf("not closed in %s yet", cell.Broker))
	}
	return nil
}
