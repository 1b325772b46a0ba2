package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// brokerTimeout bounds what one batch system may take for one pass.
const brokerTimeout = time.Minute

// settingBroker begins the names under which the store keeps what the loop saw of a cell's batch system, for all
// servers to show.
const settingBroker = "broker:"

// brokerNote is what the loop saw last of a cell's batch system.
type brokerNote struct {
	Error string                // "": it answers
	Hosts map[string]hostAnswer // by ID: those that are to be closed there, or whose opening failed
}

// hostAnswer is what a batch system made of a host's closing.
type hostAnswer struct {
	Closed bool
	Jobs   int    // that still run there
	Error  string // why it is not as wanted; it is tried again
}

// brokers keeps hosts of batch systems open and closed as people want, and VMs of their cells booked. A batch system
// that is away holds up nobody but itself.
func (s *Server) brokers(ctx context.Context, epoch int64) error {
	var cells []farm.Cell
	err := s.store.View(ctx, func(t *store.Tx) (err error) {
		cells, err = t.Cells()
		return err
	})
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	failed := make([]error, len(cells))
	for i, cell := range cells {
		if cell.Broker != farm.BrokerGrange && cell.Broker != "" {
			memory := s.booked[cell.Name]
			if memory == nil {
				memory = newBookings()
				s.booked[cell.Name] = memory
			}
			all.Go(func() { failed[i] = s.runBroker(ctx, epoch, cell, memory) })
		}
	}
	all.Wait()
	return errors.Join(failed...)
}

// runBroker does one cell. What its batch system refuses is noted in the store; only the store's own errors are
// returned.
func (s *Server) runBroker(ctx context.Context, epoch int64, cell farm.Cell, memory *bookings) error {
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	was, err := s.brokerNote(ctx, cell.Name)
	if err != nil {
		return err
	}
	note := brokerNote{Hosts: map[string]hostAnswer{}}
	err = s.brokePass(ctx, epoch, cell, memory, was, &note)
	if farm.IsCode(err, store.CodeNotLeader) {
		return err
	}
	if err != nil {
		note.Error = err.Error()
	}
	return s.noteBroker(ctx, epoch, cell, was, note)
}

func (s *Server) brokePass(ctx context.Context, epoch int64, cell farm.Cell, memory *bookings, was brokerNote,
	note *brokerNote) error {
	here, err := s.startPass(ctx, epoch, cell)
	if err != nil {
		return err
	}
	here.memory = memory
	here.close(ctx, was, note)
	return here.bookAll(ctx)
}

// startPass asks a cell's batch system for its nodes, and the store for the cell's hosts.
func (s *Server) startPass(ctx context.Context, epoch int64, cell farm.Cell) (*brokerPass, error) {
	if s.broker == nil {
		return nil, &farm.Error{Kind: farm.Unavailable, Code: farm.CodeBadConfig,
			Message: "this server has no drivers of batch systems", Hint: "docs/guide/server.md says how it gets them"}
	}
	system, err := s.broker(cell)
	if err != nil {
		return nil, err
	}
	nodes, err := system.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	var hosts []farm.Host
	err = s.store.View(ctx, func(t *store.Tx) error {
		hosts, err = t.HostsBrief(cell.Name)
		return err
	})
	return newBrokerPass(s, epoch, cell, system, hosts, nodes), err
}

// brokerPass is one pass over a cell of a batch system.
type brokerPass struct {
	*Server
	epoch  int64
	cell   farm.Cell
	system batch.System
	hosts  []farm.Host           // without their facts
	nodes  map[string]batch.Node // by the host's ID
	memory *bookings
}

func newBrokerPass(s *Server, epoch int64, cell farm.Cell, system batch.System, hosts []farm.Host,
	nodes []batch.Node) *brokerPass {
	b := &brokerPass{Server: s, epoch: epoch, cell: cell, system: system, hosts: hosts, nodes: map[string]batch.Node{}}
	byName := map[string]batch.Node{}
	for _, n := range nodes {
		byName[n.Name] = n
	}
	for _, h := range hosts {
		short, _, _ := strings.Cut(h.Name, ".") // batch systems often leave the domain out
		for _, name := range []string{h.Name, short} {
			if n, ok := byName[name]; ok {
				b.nodes[h.ID] = n
				break
			}
		}
	}
	return b
}

// noteBroker keeps what was seen, when it is another thing than before; also of a pass whose time is over.
func (s *Server) noteBroker(ctx context.Context, epoch int64, cell farm.Cell, was, note brokerNote) error {
	text, err := json.Marshal(note)
	if err != nil {
		return err
	}
	if old, err := json.Marshal(was); err == nil && string(old) == string(text) {
		return nil
	}
	if note.Error != was.Error {
		s.log.Warn("batch system of a cell", "cell", cell.Name, "broker", cell.Broker, "error", note.Error)
	}
	return s.byItself(context.WithoutCancel(ctx), epoch, policy.CloseHost,
		func(c *call) error { return c.PutSetting(settingBroker+cell.Name, text) })
}

func (s *Server) brokerNote(ctx context.Context, cell string) (note brokerNote, err error) {
	err = s.store.View(ctx, func(t *store.Tx) error {
		note, err = readBrokerNote(t, cell)
		return err
	})
	return note, err
}

func readBrokerNote(t *store.Tx, cell string) (note brokerNote, err error) {
	text, err := t.Setting(settingBroker + cell)
	if action.Missing(err) {
		return brokerNote{Hosts: map[string]hostAnswer{}}, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &note)
	}
	return note, err
}

// brokerNote is what the loop saw last of a cell's batch system, decoded once for all VMs and hosts that one call
// shows: it has a line for each closed host.
func (c *call) brokerNote(cell string) (brokerNote, error) {
	if note, ok := c.seen.brokers[cell]; ok {
		return note, nil
	}
	note, err := readBrokerNote(c.Tx, cell)
	if err != nil {
		return note, err
	}
	if c.seen.brokers == nil {
		c.seen.brokers = map[string]brokerNote{}
	}
	c.seen.brokers[cell] = note
	return note, nil
}

// brokerOf reports what the batch system of a host's cell makes of its closing.
func (c *call) brokerOf(v *HostView, cell farm.Cell) error {
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
