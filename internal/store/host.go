package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// hostWanted is the part of a host that people write and no query looks at.
type hostWanted struct {
	Labels   map[string]string
	Closed   bool
	Reason   string
	Drain    farm.Drain
	Fenced   time.Time
	Serial   string
	Before   string
	Issuer   string `json:",omitempty"`
	Expires  time.Time
	Enrolled time.Time
	Known    time.Time    `json:",omitzero"`
	Threads  farm.Threads `json:",omitzero"`
}

const (
	hostColumns = `id, revision, name, cell, machine, wanted, facts, seen, clock, node`
	hostBrief   = `id, revision, name, cell, machine, wanted, '{}', seen, clock, node`
)

func scanHost(r scanner) (farm.Host, error) {
	var h farm.Host
	var w hostWanted
	var wanted, facts, node string
	var seen, clock int64
	err := r.Scan(&h.ID, &h.Revision, &h.Name, &h.Cell, &h.MachineID, &wanted, &facts, &seen, &clock, &node)
	if err == nil {
		err = errors.Join(decode(wanted, &w), decode(facts, &h.Facts))
	}
	if err != nil {
		return farm.Host{}, err
	}
	h.Labels, h.Closed, h.Reason, h.Drain, h.Fenced = w.Labels, w.Closed, w.Reason, w.Drain, w.Fenced
	h.Serial, h.Before, h.Issuer, h.Expires, h.Enrolled = w.Serial, w.Before, w.Issuer, w.Expires, w.Enrolled
	h.Facts.BatchNode = node
	h.Known, h.Threads = w.Known, w.Threads
	h.Kind, h.Seen, h.Clock = h.Facts.Kind, unstamp(seen), time.Duration(clock)
	return h, nil
}

func encodeHost(h farm.Host) (string, error) {
	return encode(hostWanted{Labels: h.Labels, Closed: h.Closed, Reason: h.Reason, Drain: h.Drain, Fenced: h.Fenced,
		Serial: h.Serial, Before: h.Before, Issuer: h.Issuer, Expires: h.Expires, Enrolled: h.Enrolled,
		Known: h.Known, Threads: h.Threads})
}

// hostRows are hosts.
type hostRows struct{ *sqlTx }

// Host is the one with an ID. Its Kind is that of its Facts.
func (t hostRows) Host(id string) (farm.Host, error) {
	h, err := scanHost(t.row("SELECT "+hostColumns+" FROM hosts WHERE id = $1", id))
	return h, found(err, "host", id)
}

// HostBrief is Host without Kind, and without Facts but BatchNode.
func (t hostRows) HostBrief(id string) (farm.Host, error) {
	h, err := scanHost(t.row("SELECT "+hostBrief+" FROM hosts WHERE id = $1", id))
	return h, found(err, "host", id)
}

// HostNamed is the one with a name.
func (t hostRows) HostNamed(name string) (farm.Host, error) {
	h, err := scanHost(t.row("SELECT "+hostColumns+" FROM hosts WHERE name = $1", name))
	return h, found(err, "host", name)
}

// HostOfMachine is the one that enrolled with a machine ID; the one enrolled last, when machines were cloned.
func (t hostRows) HostOfMachine(machine string) (farm.Host, error) {
	h, err := scanHost(t.row("SELECT "+hostColumns+" FROM hosts WHERE machine = $1 ORDER BY revision DESC LIMIT 1",
		machine))
	return h, found(err, "host of machine", machine)
}

// Hosts are those of a cell with all their facts, which may be megabytes for a large farm; "": of all cells.
func (t hostRows) Hosts(cell string) (hosts []farm.Host, err error) {
	err = t.EachHost(cell, func(h farm.Host) { hosts = append(hosts, h) })
	return hosts, err
}

// EachHost is Hosts where each is looked at by itself. do must not use the Tx.
func (t hostRows) EachHost(cell string, do func(farm.Host)) error {
	return t.eachHost(cell, hostColumns, do)
}

// HostsBrief are Hosts without Kind, and without Facts but BatchNode: cheap enough to be looked at every few seconds.
func (t hostRows) HostsBrief(cell string) (hosts []farm.Host, err error) {
	err = t.eachHost(cell, hostBrief, func(h farm.Host) { hosts = append(hosts, h) })
	return hosts, err
}

func (t hostRows) eachHost(cell, columns string, do func(farm.Host)) error {
	where, args := " ORDER BY name", []any(nil)
	if cell != "" {
		where, args = " WHERE cell = $1 ORDER BY name", []any{cell}
	}
	return t.each(func(r scanner) error {
		h, err := scanHost(r)
		if err == nil {
			do(h)
		}
		return err
	}, "SELECT "+columns+" FROM hosts"+where, args...)
}

// Seen is when a host reported last.
type Seen struct {
	ID    string // of the host
	At    time.Time
	Ahead time.Duration // its clock minus ours
}

// HostsSeen is when each host reported last, in the order of their IDs: cheaper than Hosts.
func (t hostRows) HostsSeen() (all []Seen, err error) {
	err = t.each(func(r scanner) error {
		s, err := scanSeen(r)
		all = append(all, s)
		return err
	}, "SELECT id, seen, clock FROM hosts ORDER BY id")
	return all, err
}

// HostsSeenAfter is a page of HostsSeen: those behind an ID.
func (t hostRows) HostsSeenAfter(id string, limit int) (all []Seen, err error) {
	err = t.each(func(r scanner) error {
		s, err := scanSeen(r)
		all = append(all, s)
		return err
	}, "SELECT id, seen, clock FROM hosts WHERE id > $1 ORDER BY id LIMIT $2", id, limit)
	return all, err
}

func scanSeen(r scanner) (s Seen, err error) {
	var seen int64
	err = r.Scan(&s.ID, &seen, &s.Ahead)
	s.At = unstamp(seen)
	return s, err
}

// InsertHost adds a host. CodeTaken: the name or the ID is another's.
func (t hostRows) InsertHost(h farm.Host) error {
	wanted, err := encodeHost(h)
	if err != nil {
		return err
	}
	facts, err := encode(h.Facts)
	if err != nil {
		return err
	}
	n, err := t.exec(`INSERT INTO hosts (id, revision, name, cell, machine, wanted, facts, seen, clock, node)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING`,
		h.ID, t.revision, h.Name, h.Cell, h.MachineID, wanted, facts, stamp(h.Seen), int64(h.Clock),
		h.Facts.BatchNode)
	if err != nil {
		return err
	}
	if n == 0 {
		return hostTaken(h.Name)
	}
	t.changed(Change{Kind: KindHost, ID: h.ID, Host: h.ID})
	return nil
}

func hostTaken(name string) error {
	return taken("there is another host "+name,
		"take another name, or forget that host first: grange host forget "+name)
}

// SetHost writes what people want of a host: all but Facts, Kind, Seen and Clock. CodeTaken: the name is another's.
func (t hostRows) SetHost(h farm.Host) error {
	wanted, err := encodeHost(h)
	if err != nil {
		return err
	}
	n, err := t.exec(`UPDATE hosts SET revision = $1, name = $2, cell = $3, machine = $4, wanted = $5
		WHERE id = $6 AND NOT EXISTS (SELECT 1 FROM hosts other WHERE other.name = $2 AND other.id <> $6)`,
		t.revision, h.Name, h.Cell, h.MachineID, wanted, h.ID)
	if err == nil && n == 0 {
		return t.notSet(h)
	}
	if err != nil {
		return err
	}
	t.changed(Change{Kind: KindHost, ID: h.ID, Host: h.ID})
	return nil
}

// notSet is why SetHost wrote nothing.
func (t hostRows) notSet(h farm.Host) error {
	var other string
	err := t.row("SELECT id FROM hosts WHERE name = $1 AND id <> $2", h.Name, h.ID).Scan(&other)
	if err == nil {
		return hostTaken(h.Name)
	}
	return found(err, "host", h.ID)
}

// TouchHost makes a change of a host that has none, so that those who watch it look again.
func (t hostRows) TouchHost(id string) error {
	n, err := t.exec("UPDATE hosts SET revision = $1 WHERE id = $2", t.revision, id)
	if err := must(n, err, "host", id); err != nil {
		return err
	}
	t.changed(Change{Kind: KindHost, ID: id, Host: id})
	return nil
}

// SetHostFacts writes what a host says of itself. The same once more writes nothing.
func (t hostRows) SetHostFacts(id string, f farm.Facts) error {
	facts, err := encode(f)
	if err != nil {
		return err
	}
	n, err := t.exec("UPDATE hosts SET revision = $1, facts = $2, node = $3 WHERE id = $4 AND facts <> $5", t.revision,
		facts, f.BatchNode, id, facts)
	if err != nil {
		return err
	}
	if n == 0 {
		var there string
		return found(t.row("SELECT id FROM hosts WHERE id = $1", id).Scan(&there), "host", id)
	}
	t.changed(Change{Kind: KindHost, ID: id, Host: id})
	return nil
}

// SetHostSeen notes that a host reported. The feed does not tell: it would be a change a second for each host. Many at
// once: Store.Saw.
func (t hostRows) SetHostSeen(id string, seen time.Time, clock time.Duration) error {
	n, err := t.exec("UPDATE hosts SET seen = $1, clock = $2 WHERE id = $3", stamp(seen), int64(clock), id)
	return must(n, err, "host", id)
}

// DeleteHost takes the row away, and what the host reported beside its facts. It does not look at VMs.
func (t hostRows) DeleteHost(id string) error {
	n, err := t.exec("DELETE FROM hosts WHERE id = $1", id)
	if err := must(n, err, "host", id); err != nil {
		return err
	}
	for _, text := range []string{"DELETE FROM host_jobs WHERE host = $1", "DELETE FROM finding_changes WHERE host = $1"} {
		if _, err := t.exec(text, id); err != nil {
			return err
		}
	}
	t.changed(Change{Kind: KindHost, ID: id, Host: id, Deleted: true})
	return nil
}

// Saw notes that many hosts reported, in one transaction that has no revision and wakes nobody. Hosts that are gone are
// passed over.
func (s *Store) Saw(ctx context.Context, all []Seen) error {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b Seen) int { return strings.Compare(a.ID, b.ID) })
	return s.locked(ctx, func(t *Tx) error {
		for _, h := range sorted {
			if _, err := t.exec("UPDATE hosts SET seen = $1, clock = $2 WHERE id = $3", stamp(h.At), int64(h.Ahead),
				h.ID); err != nil {
				return err
			}
		}
		return nil
	})
}

// CountHosts is how many hosts a cell has.
func (t hostRows) CountHosts(cell string) (n int, err error) {
	err = t.row("SELECT COUNT(*) FROM hosts WHERE cell = $1", cell).Scan(&n)
	return n, err
}
