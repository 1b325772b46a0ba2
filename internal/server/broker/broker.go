// Package broker keeps cells of batch systems as wanted: their hosts open or closed there, capacity reserved for each
// VM, and images that jobs wait for on their hosts.
package broker

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// Timeout bounds what one batch system may take for one pass.
const Timeout = time.Minute

// settingBroker begins the names under which the store keeps what the loop saw of a cell's batch system, for all
// servers to show.
const settingBroker = "broker:"

// Options is what brokers are made of.
type Options struct {
	Store *store.Store
	Log   *slog.Logger
	Now   func() time.Time
	// System is the batch system of a cell; nil: there is none of any.
	System func(farm.Cell) (batch.System, error)
	// Closed is why no new VM goes to a host, in a word; "": it is open.
	Closed func(farm.Host, farm.Cell) string
	// Stage has the hosts of a cell fetch an image of the catalogue unless its digest is had, and returns its digest.
	Stage func(ctx context.Context, epoch int64, cell, image, had string) (digest string, err error)
	// ReadEnded takes what a cell's batch system says of jobs that have ended on its hosts, whose names are there by
	// those of their nodes; nil: nobody wants to know.
	ReadEnded func(ctx context.Context, epoch int64, cell farm.Cell, system batch.System, hosts map[string]string) error
	// EndVM enters that nothing of a VM is left on any host.
	EndVM func(t *store.Tx, vm farm.VM, why string) error
}

// Brokers are those of a fleet's cells, as one server knows them.
type Brokers struct {
	Options
	actions    action.Actions
	reserved   map[string]*reservations // by cell; of the loop
	explaining chan struct{}            // has a token while a batch system is asked for somebody's explanation
}

// New makes brokers that have seen nothing yet.
func New(o Options) *Brokers {
	return &Brokers{Options: o, actions: action.New(o.Store, o.Log, o.Now),
		reserved: map[string]*reservations{}, explaining: make(chan struct{}, 1)}
}

// Note is what the loop saw last of a cell's batch system.
type Note struct {
	Error string                // "": it answers
	Hosts map[string]hostAnswer // by ID: those that are to be closed there, or whose opening failed
}

// hostAnswer is what a batch system made of a host's closing.
type hostAnswer struct {
	Closed bool
	Jobs   int    // that still run there
	Error  string // why it is not as wanted; it is tried again
}

// Pass keeps hosts of batch systems open and closed as people want, and VMs of their cells reserved. A batch system
// that is away holds up nobody but itself.
func (s *Brokers) Pass(ctx context.Context, epoch int64) error {
	var cells []farm.Cell
	err := s.Store.View(ctx, func(t *store.Tx) (err error) {
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
			memory := s.reserved[cell.Name]
			if memory == nil {
				memory = newReservations()
				s.reserved[cell.Name] = memory
			}
			all.Go(func() { failed[i] = s.runBroker(ctx, epoch, cell, memory) })
		}
	}
	all.Wait()
	return errors.Join(failed...)
}

// runBroker does one cell. What its batch system refuses is noted in the store; only the store's own errors are
// returned.
func (s *Brokers) runBroker(ctx context.Context, epoch int64, cell farm.Cell, memory *reservations) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	was, err := s.brokerNote(ctx, cell.Name)
	if err != nil {
		return err
	}
	note := Note{Hosts: map[string]hostAnswer{}}
	err = s.brokePass(ctx, epoch, cell, memory, was, &note)
	if farm.IsCode(err, store.CodeNotLeader) {
		return err
	}
	if err != nil {
		note.Error = err.Error()
	}
	return s.noteBroker(ctx, epoch, cell, was, note)
}

func (s *Brokers) brokePass(ctx context.Context, epoch int64, cell farm.Cell, memory *reservations, was Note,
	note *Note) error {
	here, err := s.startPass(ctx, epoch, cell)
	if err != nil {
		return err
	}
	here.memory = memory
	here.close(ctx, was, note)
	return errors.Join(here.reserveAll(ctx), here.stage(ctx), here.readEnded(ctx))
}

// startPass asks a cell's batch system for its nodes, and the store for the cell's hosts.
func (s *Brokers) startPass(ctx context.Context, epoch int64, cell farm.Cell) (*brokerPass, error) {
	if s.System == nil {
		return nil, &farm.Error{Kind: farm.Unavailable, Code: farm.CodeBadConfig,
			Message: "this server has no drivers of batch systems", Hint: "docs/guide/server.md says how it gets them"}
	}
	system, err := s.System(cell)
	if err != nil {
		return nil, err
	}
	nodes, err := system.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	var hosts []farm.Host
	err = s.Store.View(ctx, func(t *store.Tx) error {
		hosts, err = t.HostsBrief(cell.Name)
		return err
	})
	return newBrokerPass(s, epoch, cell, system, hosts, nodes), err
}

// brokerPass is one pass over a cell of a batch system.
type brokerPass struct {
	*Brokers
	epoch  int64
	cell   farm.Cell
	system batch.System
	hosts  []farm.Host           // brief
	nodes  map[string]batch.Node // by the host's ID
	memory *reservations
}

func newBrokerPass(s *Brokers, epoch int64, cell farm.Cell, system batch.System, hosts []farm.Host,
	nodes []batch.Node) *brokerPass {
	return &brokerPass{Brokers: s, epoch: epoch, cell: cell, system: system, hosts: hosts,
		nodes: nodesOf(hosts, nodes)}
}

// endedEvery is how often a batch system is asked for jobs that have ended.
const endedEvery = time.Minute

func (b *brokerPass) readEnded(ctx context.Context) error {
	now := b.Now()
	if b.ReadEnded == nil || now.Sub(b.memory.readEnded) < endedEvery {
		return nil
	}
	b.memory.readEnded = now
	hosts := map[string]string{}
	for _, h := range b.hosts {
		if n, ok := b.nodes[h.ID]; ok {
			hosts[n.Name] = h.Name
		}
	}
	return b.ReadEnded(ctx, b.epoch, b.cell, b.system, hosts)
}

// noteBroker keeps what was seen, when it is another thing than before; also of a pass whose time is over.
func (s *Brokers) noteBroker(ctx context.Context, epoch int64, cell farm.Cell, was, note Note) error {
	text, err := json.Marshal(note)
	if err != nil {
		return err
	}
	if old, err := json.Marshal(was); err == nil && string(old) == string(text) {
		return nil
	}
	if note.Error != was.Error {
		s.Log.Warn("batch system of a cell", "cell", cell.Name, "broker", cell.Broker, "error", note.Error)
	}
	return s.actions.ByItself(context.WithoutCancel(ctx), epoch, policy.CloseHost,
		func(c *action.Call) error { return c.PutSetting(settingBroker+cell.Name, text) })
}

func (s *Brokers) brokerNote(ctx context.Context, cell string) (note Note, err error) {
	err = s.Store.View(ctx, func(t *store.Tx) error {
		note, err = ReadNote(t, cell)
		return err
	})
	return note, err
}

// ReadNote is the note of a cell as the store keeps it.
func ReadNote(t *store.Tx, cell string) (note Note, err error) {
	text, err := t.Setting(settingBroker + cell)
	if action.Missing(err) {
		return Note{Hosts: map[string]hostAnswer{}}, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &note)
	}
	return note, err
}
