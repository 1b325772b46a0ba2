package store

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// Stream is a stream that a server waits for a host to bring.
type Stream struct {
	ID, Host, VM, Kind string
	Port               int
	Server             string // URL
	Created            time.Time
}

// orderRows are what hosts are to do with VMs: bring streams, move them, delete orphans.
type orderRows struct{ *sqlTx }

func streams() noun[Stream] {
	return noun[Stream]{kind: KindStream, what: "stream", name: func(s Stream) string { return s.ID },
		owner: func(s Stream) string { return s.Host }, change: func(s Stream, c *Change) { c.Host = s.Host }}
}

// Stream is the one with an ID.
func (t orderRows) Stream(id string) (Stream, error) { return streams().get(t.sqlTx, id) }

// Streams are those that a host shall bring; "": those of all hosts.
func (t orderRows) Streams(host string) ([]Stream, error) { return streams().list(t.sqlTx, host) }

// PutStream asks for a stream.
func (t orderRows) PutStream(s Stream) error { return streams().put(t.sqlTx, s) }

// DeleteStream takes the request back.
func (t orderRows) DeleteStream(id string) error { return streams().drop(t.sqlTx, id) }

func orphans() noun[farm.Orphan] {
	return noun[farm.Orphan]{kind: KindOrphan, what: "stranger",
		name:   func(v farm.Orphan) string { return v.Host + "/" + v.VM },
		owner:  func(v farm.Orphan) string { return v.Host },
		change: func(v farm.Orphan, c *Change) { c.Host = v.Host }}
}

// Orphans are those of a host; "": those of all hosts.
func (t orderRows) Orphans(host string) ([]farm.Orphan, error) { return orphans().list(t.sqlTx, host) }

// OrphansOf are those of some hosts.
func (t orderRows) OrphansOf(hosts []farm.Host) (all []farm.Orphan, err error) {
	n := orphans()
	err = t.eachOf(hostIDs(hosts), func(r scanner) error {
		v, err := n.scan(r)
		all = append(all, v)
		return err
		// in no order: for that SQLite would read all of the kind
	}, "SELECT revision, body FROM objects WHERE kind = '"+string(n.kind)+"' AND owner IN (%s)")
	slices.SortFunc(all, func(a, b farm.Orphan) int { return strings.Compare(n.name(a), n.name(b)) })
	return all, err
}

// PutOrphan writes one, new or not.
func (t orderRows) PutOrphan(v farm.Orphan) error { return orphans().put(t.sqlTx, v) }

// DeleteOrphan takes one away.
func (t orderRows) DeleteOrphan(host, vm string) error { return orphans().drop(t.sqlTx, host+"/"+vm) }

// moves are kept by VM: the last one of each.
func moves() noun[farm.Move] {
	return noun[farm.Move]{kind: KindMove, what: "move", name: func(m farm.Move) string { return m.VM },
		owner: func(m farm.Move) string {
			if m.Active() {
				return activeMove
			}
			return ""
		}, change: func(m farm.Move, c *Change) { // whoever looks at the VM, or has it, looks anew
			c.Kind, c.ID, c.Project, c.Host, c.Deleted = KindVM, m.VM, m.Project, m.From, false
		}}
}

// activeMove owns the moves that are under way, for they are few and looked for often.
const activeMove = "active"

// Move is the last move of a VM.
func (t orderRows) Move(vm string) (farm.Move, error) { return moves().get(t.sqlTx, vm) }

// ActiveMoves are those under way.
func (t orderRows) ActiveMoves() ([]farm.Move, error) { return moves().list(t.sqlTx, activeMove) }

// PutMove writes a VM's last move. Both hosts have their lists read anew.
func (t orderRows) PutMove(m farm.Move) error {
	if err := moves().put(t.sqlTx, m); err != nil {
		return err
	}
	t.changed(Change{Kind: KindVM, ID: m.VM, Project: m.Project, Host: m.To})
	return nil
}

// setting is a named JSON text.
type setting struct {
	Name  string
	Value json.RawMessage
}

func settings() noun[setting] {
	return noun[setting]{kind: KindSetting, what: "setting", name: func(s setting) string { return s.Name }}
}

// Setting is a named JSON text: the certificate authority, settings of all hosts.
func (t farmRows) Setting(name string) ([]byte, error) {
	s, err := settings().get(t.sqlTx, name)
	return s.Value, err
}

// PutSetting writes a named JSON text; another text is refused.
func (t farmRows) PutSetting(name string, value []byte) error {
	return settings().put(t.sqlTx, setting{name, value})
}

// DeleteSetting takes a setting away.
func (t farmRows) DeleteSetting(name string) error { return settings().drop(t.sqlTx, name) }
