package store

import (
	"database/sql"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// VMFilter chooses VMs; zero fields choose all.
type VMFilter struct {
	Project, Host, Cell, Owner, Group string
	Unplaced                          bool      // no host yet, and not to be deleted
	Deleting                          bool      // to be deleted
	Reserved                          bool      // in a batch system, or to be
	ExpiresBefore                     time.Time // that expire before then, and are not to be deleted
	After                             string    // page: names "project/name" behind this one
	Limit                             int
}

// vmWanted is the part of a VM that people write and no query looks at.
type vmWanted struct {
	Key            string   `json:",omitzero"`
	Keys           []string `json:",omitzero"`
	Image          string
	Digest         string `json:",omitzero"`
	Shape          farm.Shape
	Network        string            `json:",omitzero"`
	Needs          []string          `json:",omitzero"`
	Tags           map[string]string `json:",omitzero"`
	UserData       []byte            `json:",omitzero"`
	Created        time.Time
	Wanted         farm.Wanted
	Resize         *farm.Shape `json:",omitzero"`
	SecurityGroups []string    `json:",omitzero"`
}

// A VM's Reservation is in the column booking, which the release before this one reads and writes as well.
const vmColumns = `id, revision, changed, project, name, owner, grp, network, address, bits, mac, hostname,
	expires, wanted, cell, host, booking, waiting, plan, observed`

func scanVM(r scanner) (farm.VM, error) {
	var v farm.VM
	var w vmWanted
	var address, wanted, plan, observed string
	var bits, expires int64
	err := r.Scan(&v.ID, &v.Revision, &v.Changed, &v.Project, &v.Name, &v.Owner, &v.Group, &v.Lease.Network, &address,
		&bits, &v.Lease.MAC, &v.Lease.Hostname, &expires, &wanted, &v.Cell, &v.Host, &v.Reservation, &v.Waiting,
		&plan, &observed)
	if err == nil {
		err = errors.Join(decode(wanted, &w), decode(plan, &v.Plan), decode(observed, &v.Observed))
	}
	if err != nil {
		return farm.VM{}, err
	}
	v.Lease.Address, err = parseAddress(address, bits)
	v.Key, v.Keys, v.Image, v.Digest, v.Shape, v.Network, v.Needs, v.Tags, v.UserData =
		w.Key, w.Keys, w.Image, w.Digest, w.Shape, w.Network, w.Needs, w.Tags, w.UserData
	v.Created, v.Expires, v.Wanted, v.Resize = w.Created, unstamp(expires), w.Wanted, w.Resize
	v.SecurityGroups = w.SecurityGroups
	return v, err
}

func parseAddress(text string, bits int64) (netip.Prefix, error) {
	if text == "" {
		return netip.Prefix{}, nil
	}
	address, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("store: read an address: %w", err)
	}
	return netip.PrefixFrom(address, int(bits)), nil
}

// address is a leased address as its column has it, and the bits of its prefix.
func address(p netip.Prefix) (string, int64) {
	if !p.IsValid() {
		return "", 0
	}
	return p.Addr().String(), int64(p.Bits())
}

func encodeWanted(v farm.VM) (string, error) {
	return encode(vmWanted{Key: v.Key, Keys: v.Keys, Image: v.Image, Digest: v.Digest, Shape: v.Shape,
		Network: v.Network, Needs: v.Needs, Tags: v.Tags, UserData: v.UserData, Created: v.Created, Wanted: v.Wanted,
		Resize: v.Resize, SecurityGroups: v.SecurityGroups})
}

// cpus and memory are what a VM counts for in sums: while it is resized, the larger of what it has and what it is to
// have.
func cpus(v farm.VM) int64 {
	if v.Resize != nil {
		return int64(max(v.Shape.CPUs, v.Resize.CPUs))
	}
	return int64(v.Shape.CPUs)
}

func memory(v farm.VM) int64 {
	if v.Resize != nil {
		return int64(max(v.Shape.Memory, v.Resize.Memory))
	}
	return int64(v.Shape.Memory)
}

// vmRows are VMs, their leases, and what they hold together.
type vmRows struct{ *sqlTx }

// VM is the one with an ID.
func (t vmRows) VM(id string) (farm.VM, error) {
	v, err := scanVM(t.row("SELECT "+vmColumns+" FROM vms WHERE id = $1", id))
	return v, found(err, "VM", id)
}

// VMHosts reads where some VMs have their place, by ID: "" is nowhere yet. IDs of no VM are not in it.
func (t vmRows) VMHosts(ids []string) (map[string]string, error) {
	hosts := map[string]string{}
	return hosts, t.eachOf(ids, func(r scanner) error {
		var id, host string
		err := r.Scan(&id, &host)
		hosts[id] = host
		return err
	}, "SELECT id, host FROM vms WHERE id IN (%s)")
}

// ChangedVM is the VM that a change of the feed is of: as it is now, or as Inserted has it, which takes no query.
// Nobody may write to what it points to.
func (t vmRows) ChangedVM(c Change) (*farm.VM, error) {
	if v := t.store.Inserted(c); v != nil {
		return v, nil
	}
	v, err := t.VM(c.ID)
	return &v, err
}

// VMNamed is the one with a name in a project.
func (t vmRows) VMNamed(project, name string) (farm.VM, error) {
	v, err := scanVM(t.row("SELECT "+vmColumns+" FROM vms WHERE project = $1 AND name = $2", project, name))
	return v, found(err, "VM", project+"/"+name)
}

// VMs are those that a filter chooses, in the order of project and name.
func (t vmRows) VMs(f VMFilter) (vms []farm.VM, err error) {
	err = t.EachVM(f, func(v farm.VM) { vms = append(vms, v) })
	return vms, err
}

// EachVM is VMs for many of them, of which each is looked at by itself. do must not use the Tx.
func (t vmRows) EachVM(f VMFilter, do func(farm.VM)) error {
	where, args := f.where()
	return t.each(func(r scanner) error {
		v, err := scanVM(r)
		if err == nil {
			do(v)
		}
		return err
	}, "SELECT "+vmColumns+" FROM vms"+where, args...)
}

// Members are the names of the VMs of each server group of a project, by "project/group"; "": of all projects.
func (t vmRows) Members(project string) (map[string][]string, error) {
	condition, args := "grp <> ''", []any{}
	if project != "" {
		condition, args = condition+" AND project = $1", []any{project}
	}
	members := map[string][]string{}
	return members, t.each(func(r scanner) error {
		var project, group, name string
		err := r.Scan(&project, &group, &name)
		members[project+"/"+group] = append(members[project+"/"+group], name)
		return err
	}, "SELECT project, grp, name FROM vms WHERE "+condition+" ORDER BY project, grp, name", args...)
}

// EachVMState is EachVM, in any order, for those who count: a VM has only what its State and who may see it depend on,
// such as the reason of one that is stopped. After and Limit are passed over.
func (t vmRows) EachVMState(f VMFilter, do func(farm.VM)) error {
	conditions, args := f.conditions()
	return t.each(func(r scanner) error {
		var v farm.VM
		var wanted, observed string
		if err := r.Scan(&v.Project, &v.Owner, &v.Cell, &v.Host, &wanted, &v.Observed.State, &observed); err != nil {
			return err
		}
		var w struct{ Wanted struct{ Power farm.Power } }
		var o struct{ Reason string }
		err := errors.Join(decode(wanted, &w), decode(observed, &o))
		v.Wanted.Power, v.Observed.Reason = w.Wanted.Power, o.Reason
		do(v)
		return err
	},
		`SELECT project, owner, cell, host, wanted, state, CASE WHEN state = 'stopped' THEN observed ELSE '{}' END
		FROM vms`+whereAll(conditions), args...)
}

// CountVMs is how many a filter chooses; After and Limit are passed over.
func (t vmRows) CountVMs(f VMFilter) (n int, err error) {
	conditions, args := f.conditions()
	err = t.row("SELECT COUNT(*) FROM vms"+whereAll(conditions), args...).Scan(&n)
	return n, err
}

func (f VMFilter) where() (text string, args []any) {
	conditions, args := f.conditions()
	project, name, ok := strings.Cut(f.After, "/")
	switch {
	case ok && project == f.Project && project != "": // SQLite would pass over all before that name one by one
		args = append(args, name)
		conditions = append(conditions, fmt.Sprintf("name > $%d", len(args)))
	case ok:
		args = append(args, project, name)
		conditions = append(conditions, fmt.Sprintf("(project, name) > ($%d, $%d)", len(args)-1, len(args)))
	}
	text = whereAll(conditions) + " ORDER BY project, name"
	if f.Limit > 0 {
		args = append(args, f.Limit) // not in the text, which is kept ready: there is one for all limits
		text += fmt.Sprintf(" LIMIT $%d", len(args))
	}
	return text, args
}

func (f VMFilter) conditions() (conditions []string, args []any) {
	for _, c := range []struct{ column, value string }{{"project", f.Project}, {"host", f.Host}, {"cell", f.Cell},
		{"owner", f.Owner}, {"grp", f.Group}} {
		if c.value != "" {
			args = append(args, c.value)
			conditions = append(conditions, fmt.Sprintf("%s = $%d", c.column, len(args)))
		}
	}
	if f.Host != "" {
		conditions = append(conditions, "host <> ''") // which its index wants to hear
	}
	if f.Group != "" {
		conditions = append(conditions, "grp <> ''") // likewise
	}
	if f.Unplaced {
		conditions = append(conditions, "host = '' AND deleting = 0")
	}
	if f.Deleting {
		conditions = append(conditions, "deleting = 1")
	}
	if f.Reserved {
		conditions = append(conditions, "booking <> ''")
	}
	if !f.ExpiresBefore.IsZero() {
		args = append(args, stamp(f.ExpiresBefore))
		conditions = append(conditions, fmt.Sprintf("expires <> 0 AND expires < $%d AND deleting = 0", len(args)))
	}
	return conditions, args
}

func whereAll(conditions []string) string {
	if len(conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(conditions, " AND ")
}

// InsertVM adds a VM. CodeTaken: the name, address, MAC or host name is another's; the message says which. Its Revision
// and Changed are not looked at.
func (t vmRows) InsertVM(v farm.VM) error {
	wanted, err := encodeWanted(v)
	if err != nil {
		return err
	}
	plan, err := encode(v.Plan)
	if err != nil {
		return err
	}
	observed, err := encode(v.Observed)
	if err != nil {
		return err
	}
	addr, bits := address(v.Lease.Address)
	n, err := t.exec(`INSERT INTO vms (id, revision, changed, project, name, owner, grp, network, address, bits, mac,
		hostname, cpus, memory, scratch,
		expires, deleting, wanted, cell, host, booking, waiting, plan, state, observed, placed, most_cpus)
		VALUES ($1, $2, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
		$23, $24, $25, $12) ON CONFLICT DO NOTHING`,
		v.ID, t.revision, v.Project, v.Name, v.Owner, v.Group, v.Lease.Network, addr, bits, v.Lease.MAC,
		v.Lease.Hostname,
		cpus(v), memory(v), int64(v.Shape.DiskSpace()), stamp(v.Expires), number(v.Wanted.Power == farm.PowerDeleted),
		wanted,
		v.Cell, v.Host, v.Reservation, v.Waiting, plan, string(v.Observed.State), observed, t.placed(v))
	if err != nil {
		return err
	}
	if n == 0 {
		return t.vmTaken(v)
	}
	t.uses(v.Project, holds(v))
	t.changed(Change{Kind: KindVM, ID: v.ID, Project: v.Project, Host: v.Host})
	t.enter(v, wanted)
	return t.TellMembers(v.Project, v.SecurityGroups)
}

// maxEntered bounds the texts of VMs that are remembered: a cloud-init text may be many times as large as all else, and
// so may keys.
const maxEntered = 4096

// enter remembers a VM as it was inserted, for those who follow the feed. wanted is what its column has.
func (t vmRows) enter(v farm.VM, wanted string) {
	if len(wanted) > maxEntered {
		return
	}
	if t.entered == nil {
		t.entered = map[string]*farm.VM{}
	}
	v.Revision, v.Changed = t.revision, t.revision
	t.entered[v.ID] = &v
}

// vmTaken finds out what of a VM is another's.
func (t vmRows) vmTaken(v farm.VM) error {
	addr, _ := address(v.Lease.Address)
	for _, c := range []struct {
		what, value string
		where       string
		args        []any
		hint        string
	}{
		{"ID", v.ID, "id = $1", []any{v.ID}, "make another one"},
		{"name", v.Project + "/" + v.Name, "project = $1 AND name = $2", []any{v.Project, v.Name},
			"take another name, or delete that VM"},
		{"address", addr, "network = $1 AND address = $2", []any{v.Lease.Network, addr},
			"take another address, or none to have a free one leased"},
		{"host name", v.Lease.Hostname, "network = $1 AND hostname = $2", []any{v.Lease.Network, v.Lease.Hostname},
			"take another name"},
		{"MAC address", v.Lease.MAC, "mac = $1", []any{v.Lease.MAC}, "take another MAC address"},
	} {
		var project, name string
		err := t.row("SELECT project, name FROM vms WHERE "+c.where, c.args...).Scan(&project, &name)
		if err == nil {
			return taken(fmt.Sprintf("the %s %s is taken by VM %s/%s", c.what, c.value, project, name), c.hint)
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	return taken("the VM is taken", "")
}

// SetVM writes what people want of a VM: all but its project, name and lease, which are for good, and what the next two
// write. Its Changed becomes this revision.
func (t vmRows) SetVM(v farm.VM) error {
	wanted, err := encodeWanted(v)
	if err != nil {
		return err
	}
	var project, host string
	var held farm.Quota
	if err := t.row("SELECT project, host, "+heldBy+" FROM vms WHERE id = $1", v.ID).Scan(&project, &host, &held.VMs,
		&held.CPUs, &held.Memory, &held.Scratch); err != nil {
		return found(err, "VM", v.ID)
	}
	if _, err := t.exec(`UPDATE vms SET revision = $1, changed = $1, owner = $2, grp = $3, cpus = $4,
		memory = $5, scratch = $6, expires = $7, deleting = $8, wanted = $9,
		most_cpus = CASE WHEN most_cpus < $4 THEN $4 ELSE most_cpus END WHERE id = $10`,
		t.revision, v.Owner, v.Group, cpus(v), memory(v), int64(v.Shape.DiskSpace()),
		stamp(v.Expires), number(v.Wanted.Power == farm.PowerDeleted), wanted, v.ID); err != nil {
		return err
	}
	t.uses(project, minus(holds(v), held))
	t.changed(Change{Kind: KindVM, ID: v.ID, Project: project, Host: host})
	return nil
}

// SetVMPlace writes where a VM is: Cell, Host, Plan, Reservation, Waiting.
func (t vmRows) SetVMPlace(v farm.VM) error {
	plan, err := encode(v.Plan)
	if err != nil {
		return err
	}
	s, cpus := stay{id: v.ID}, int64(0)
	if err := t.row("SELECT project, owner, host, placed, most_cpus, cpus FROM vms WHERE id = $1",
		v.ID).Scan(&s.project, &s.owner, &s.host, &s.placed, &s.cpus, &cpus); err != nil {
		return found(err, "VM", v.ID)
	}
	s.cpus = max(s.cpus, cpus)
	placed, most := s.placed, s.cpus
	if s.host != v.Host {
		placed, most = t.placed(v), cpus
		if err := t.left(s); err != nil {
			return err
		}
	}
	if _, err := t.exec("UPDATE vms SET revision = $1, cell = $2, host = $3, booking = $4, waiting = $5, plan = $6, "+
		"placed = $7, most_cpus = $8 WHERE id = $9", t.revision, v.Cell, v.Host, v.Reservation, v.Waiting, plan, placed,
		most, v.ID); err != nil {
		return err
	}
	if s.host != "" && s.host != v.Host {
		t.changed(Change{Kind: KindVM, ID: v.ID, Project: s.project, Host: s.host})
	}
	t.changed(Change{Kind: KindVM, ID: v.ID, Project: s.project, Host: v.Host})
	return nil
}

// PlaceVM gives a VM without a host its place: Cell, Host, Plan, and nothing that it waits for. ok is false when it is
// not as it was read any more: it is gone or to be deleted, has a host, or people want something else of it since
// revision changed.
func (t vmRows) PlaceVM(v farm.VM) (ok bool, err error) {
	plan, err := encode(v.Plan)
	if err != nil {
		return false, err
	}
	n, err := t.exec(`UPDATE vms SET revision = $1, cell = $2, host = $3, waiting = '', plan = $4, placed = $5,
		most_cpus = cpus WHERE id = $6 AND host = '' AND deleting = 0 AND booking = '' AND changed = $7`,
		t.revision, v.Cell, v.Host, plan, t.placed(v), v.ID, v.Changed)
	if err != nil || n == 0 {
		return false, err
	}
	t.changed(Change{Kind: KindVM, ID: v.ID, Project: v.Project, Host: v.Host})
	return true, nil
}

// SetVMWaiting reports why a VM has no host yet. The same once more writes nothing, and neither does one for a VM that
// has a host by now.
func (t vmRows) SetVMWaiting(id, waiting string) error {
	var project string
	err := t.row("UPDATE vms SET revision = $1, waiting = $2 WHERE id = $3 AND host = '' AND waiting <> $4 RETURNING "+
		"project", t.revision, waiting, id, waiting).Scan(&project)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	t.changed(Change{Kind: KindVM, ID: id, Project: project})
	return nil
}

// SetVMObserved writes what a host says of a VM. The same once more writes nothing.
func (t vmRows) SetVMObserved(id string, o farm.Observed) error {
	observed, err := encode(o)
	if err != nil {
		return err
	}
	var project, host string
	err = t.row("UPDATE vms SET revision = $1, state = $2, observed = $3 WHERE id = $4 AND observed <> $5 RETURNING "+
		"project, host", t.revision, string(o.State), observed, id, observed).Scan(&project, &host)
	if errors.Is(err, sql.ErrNoRows) {
		return found(t.row("SELECT project FROM vms WHERE id = $1", id).Scan(&project), "VM", id)
	}
	if err != nil {
		return err
	}
	t.changed(Change{Kind: KindVM, ID: id, Project: project, Host: host})
	return nil
}

// DeleteVM takes the row away, and its lease is free.
func (t vmRows) DeleteVM(id string) error {
	s, wanted, cpus := stay{id: id}, "", int64(0)
	var held farm.Quota
	if err := t.row("DELETE FROM vms WHERE id = $1 RETURNING project, owner, host, placed, most_cpus, cpus, wanted, "+
		heldBy, id).Scan(&s.project, &s.owner, &s.host, &s.placed, &s.cpus, &cpus, &wanted, &held.VMs, &held.CPUs,
		&held.Memory, &held.Scratch); err != nil {
		return found(err, "VM", id)
	}
	s.cpus = max(s.cpus, cpus)
	if err := t.left(s); err != nil {
		return err
	}
	var w struct{ SecurityGroups []string }
	if err := decode(wanted, &w); err != nil {
		return err
	}
	if _, err := t.exec("DELETE FROM objects WHERE kind = $1 AND name = $2", string(KindMove), id); err != nil {
		return err
	}
	t.uses(s.project, minus(farm.Quota{}, held))
	t.changed(Change{Kind: KindVM, ID: id, Project: s.project, Host: s.host, Deleted: true})
	return t.TellMembers(s.project, w.SecurityGroups)
}

// VMLeased is the VM that holds an address, as "192.0.2.7", or a host name in a network; an empty one is not compared.
func (t vmRows) VMLeased(network, address, hostname string) (farm.VM, error) {
	v, err := scanVM(t.row("SELECT "+vmColumns+` FROM vms
		WHERE network = $1 AND (address <> '' AND address = $2 OR hostname <> '' AND hostname = $3)
		ORDER BY id LIMIT 1`, network, address, hostname))
	return v, found(err, "lease of", strings.TrimSpace(address+" "+hostname))
}

// AddressLeased reports whether a VM holds an address, as "192.0.2.7", in a network.
func (t vmRows) AddressLeased(network, address string) (bool, error) {
	return t.is("SELECT COUNT(*) > 0 FROM vms WHERE network = $1 AND address <> '' AND address = $2", network, address)
}

// NameLeased reports whether a VM holds a host name in a network.
func (t vmRows) NameLeased(network, hostname string) (bool, error) {
	return t.is("SELECT COUNT(*) > 0 FROM vms WHERE network = $1 AND hostname <> '' AND hostname = $2",
		network, hostname)
}

// LeasedAddresses are those that VMs hold in a network.
func (t vmRows) LeasedAddresses(network string) ([]string, error) {
	return t.texts("SELECT address FROM vms WHERE network = $1 AND address <> ''", network)
}

// LeasedNames are the host names that VMs hold in a network.
func (t vmRows) LeasedNames(network string) ([]string, error) {
	return t.texts("SELECT hostname FROM vms WHERE network = $1 AND hostname <> ''", network)
}

func (t *sqlTx) texts(text string, args ...any) (all []string, err error) {
	err = t.each(func(r scanner) error {
		var one string
		err := r.Scan(&one)
		all = append(all, one)
		return err
	}, text, args...)
	return all, err
}

func (t *sqlTx) is(text string, args ...any) (is bool, err error) {
	err = t.row(text, args...).Scan(&is)
	return is, err
}

// Leases are those of a network, in the order of their host names. A lease is free when its VM's row is gone, and no
// sooner.
func (t vmRows) Leases(network string) (leases []farm.Lease, err error) {
	err = t.each(func(r scanner) error {
		l := farm.Lease{Network: network}
		var text string
		var bits int64
		err := r.Scan(&text, &bits, &l.MAC, &l.Hostname)
		if err == nil {
			l.Address, err = parseAddress(text, bits)
		}
		leases = append(leases, l)
		return err
	}, "SELECT address, bits, mac, hostname FROM vms WHERE network = $1 ORDER BY hostname, address", network)
	return leases, err
}
