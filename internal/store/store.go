// Package store keeps the farm in SQL: one text for SQLite and PostgreSQL. An exported method of Store is a transaction, a method of Tx is
// one statement in it. It decides nothing.
package store

import (
	"context"
	"errors"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

var errLater = errors.New("not written yet")

// Store is a database.
type Store struct{}

// Open opens the database at a path (SQLite) or a postgres:// URL, and brings its tables to this release's. A database of a later release is refused.
func Open(ctx context.Context, url string) (*Store, error) { return nil, errLater }

// Close closes it.
func (s *Store) Close() error { return errLater }

// Update runs one write transaction. Writers run one after the other on both engines, so that what do reads stays true until the commit. do
// may be run again, when the database asks for that: it must have no effect but on the Tx. The revision is that of all that was written.
func (s *Store) Update(ctx context.Context, do func(*Tx) error) (revision int64, err error) {
	return 0, errLater
}

// View runs do on one snapshot.
func (s *Store) View(ctx context.Context, do func(*Tx) error) error { return errLater }

// Changes are what changed after a revision, oldest first, and the revision up to which that is all. Gone: the feed does not reach back so far; list anew.
func (s *Store) Changes(ctx context.Context, after int64, limit int) (changes []Change, upTo int64, err error) {
	return nil, 0, errLater
}

// Wait returns when the store's revision is above after, whoever wrote, or ctx ends; it returns the revision.
func (s *Store) Wait(ctx context.Context, after int64) (int64, error) { return 0, errLater }

// Lead takes or keeps the lease of the loops for holder, for ttl. Epoch rises with each new holder; Tx.Fence checks it.
func (s *Store) Lead(ctx context.Context, holder string, ttl time.Duration) (epoch int64, ok bool, err error) {
	return 0, false, errLater
}

// Change is one object that was written or deleted.
type Change struct {
	Revision int64
	Kind     Kind
	ID       string
	Project  string // of a VM; "": none
	Host     string // of a VM: whose wanted list it changes
	Deleted  bool
}

// Kind is a kind of object.
type Kind string

// The kinds.
const (
	KindVM      Kind = "vm"
	KindHost    Kind = "host"
	KindCell    Kind = "cell"
	KindProject Kind = "project"
	KindShape   Kind = "shape"
	KindNetwork Kind = "network"
	KindGroup   Kind = "group"
	KindUser    Kind = "user"
	KindToken   Kind = "token"
	KindStream  Kind = "stream"
	KindSetting Kind = "setting"
)

// Tx is a transaction. Lookups that find nothing fail with farm.NotFound. Lists are in the order of their names or IDs.
type Tx struct{}

// VMFilter chooses VMs; zero fields choose all.
type VMFilter struct {
	Project, Host, Cell, Owner, Group string
	Unplaced                          bool      // no host yet, and not to be deleted
	ExpiresBefore                     time.Time // expire before then, and are not to be deleted; zero: all
	After                             string    // page: names "project/name" behind this one
	Limit                             int
}

// Revision is the one that this transaction reads, or writes.
func (t *Tx) Revision() int64 { return 0 }

func (t *Tx) VM(id string) (farm.VM, error)                               { return farm.VM{}, errLater }
func (t *Tx) VMNamed(project, name string) (farm.VM, error)               { return farm.VM{}, errLater }
func (t *Tx) VMs(f VMFilter) ([]farm.VM, error)                           { return nil, errLater }
func (t *Tx) InsertVM(v farm.VM) error                                    { return errLater } // Conflict: the name, address or host name is taken
func (t *Tx) SetVM(v farm.VM) error                                       { return errLater } // what people want: all but the next two
func (t *Tx) SetVMPlace(v farm.VM) error                                  { return errLater } // Cell, Host, Plan, Booking, Waiting
func (t *Tx) SetVMObserved(id string, o farm.Observed) error              { return errLater }
func (t *Tx) DeleteVM(id string) error                                    { return errLater }
func (t *Tx) Used(project string) (farm.Quota, error)                     { return farm.Quota{}, errLater } // by VMs that are not to be deleted
func (t *Tx) UsedCell(cell string) (farm.Quota, error)                    { return farm.Quota{}, errLater }
func (t *Tx) UsedHosts(cell string) (map[string]farm.Quota, error)        { return nil, errLater }       // by host's ID, of VMs that have one, also those to be deleted; "": of all cells
func (t *Tx) VMLeased(network, address, hostname string) (farm.VM, error) { return farm.VM{}, errLater } // who holds one of the two; "" is not compared
func (t *Tx) Leases(network string) ([]farm.Lease, error)                 { return nil, errLater }

func (t *Tx) Host(id string) (farm.Host, error)                                { return farm.Host{}, errLater }
func (t *Tx) HostNamed(name string) (farm.Host, error)                         { return farm.Host{}, errLater }
func (t *Tx) HostOfMachine(machine string) (farm.Host, error)                  { return farm.Host{}, errLater }
func (t *Tx) Hosts(cell string) ([]farm.Host, error)                           { return nil, errLater } // "": of all cells
func (t *Tx) InsertHost(h farm.Host) error                                     { return errLater }
func (t *Tx) SetHost(h farm.Host) error                                        { return errLater } // what people want: all but the next two
func (t *Tx) SetHostFacts(id string, f farm.Facts) error                       { return errLater }
func (t *Tx) SetHostSeen(id string, seen time.Time, clock time.Duration) error { return errLater } // no change of the feed: it would be one a second for each host
func (t *Tx) DeleteHost(id string) error                                       { return errLater }

func (t *Tx) Cell(name string) (farm.Cell, error)            { return farm.Cell{}, errLater }
func (t *Tx) Cells() ([]farm.Cell, error)                    { return nil, errLater }
func (t *Tx) PutCell(c farm.Cell) error                      { return errLater }
func (t *Tx) DeleteCell(name string) error                   { return errLater }
func (t *Tx) Project(name string) (farm.Project, error)      { return farm.Project{}, errLater }
func (t *Tx) Projects() ([]farm.Project, error)              { return nil, errLater }
func (t *Tx) PutProject(p farm.Project) error                { return errLater }
func (t *Tx) DeleteProject(name string) error                { return errLater }
func (t *Tx) Shape(name string) (farm.Shape, error)          { return farm.Shape{}, errLater }
func (t *Tx) Shapes() ([]farm.Shape, error)                  { return nil, errLater }
func (t *Tx) PutShape(s farm.Shape) error                    { return errLater }
func (t *Tx) DeleteShape(name string) error                  { return errLater }
func (t *Tx) Network(name string) (farm.FleetNetwork, error) { return farm.FleetNetwork{}, errLater }
func (t *Tx) Networks() ([]farm.FleetNetwork, error)         { return nil, errLater }
func (t *Tx) PutNetwork(n farm.FleetNetwork) error           { return errLater }
func (t *Tx) DeleteNetwork(name string) error                { return errLater }
func (t *Tx) Group(project, name string) (farm.ServerGroup, error) {
	return farm.ServerGroup{}, errLater
}
func (t *Tx) Groups() ([]farm.ServerGroup, error)    { return nil, errLater }
func (t *Tx) PutGroup(g farm.ServerGroup) error      { return errLater }
func (t *Tx) DeleteGroup(project, name string) error { return errLater }

func (t *Tx) User(name string) (farm.User, error)             { return farm.User{}, errLater }
func (t *Tx) UserOfSubject(subject string) (farm.User, error) { return farm.User{}, errLater }
func (t *Tx) Users() ([]farm.User, error)                     { return nil, errLater }
func (t *Tx) PutUser(u farm.User) error                       { return errLater }
func (t *Tx) DeleteUser(name string) error                    { return errLater }
func (t *Tx) Grants(user string) ([]farm.Grant, error)        { return nil, errLater } // "": of all
func (t *Tx) PutGrant(g farm.Grant) error                     { return errLater }
func (t *Tx) DeleteGrant(g farm.Grant) error                  { return errLater }
func (t *Tx) Token(id string) (farm.Token, error)             { return farm.Token{}, errLater }
func (t *Tx) Tokens(user string) ([]farm.Token, error)        { return nil, errLater }
func (t *Tx) PutToken(k farm.Token) error                     { return errLater }
func (t *Tx) DeleteToken(id string) error                     { return errLater }
func (t *Tx) JoinToken(id string) (farm.JoinToken, error)     { return farm.JoinToken{}, errLater }
func (t *Tx) JoinTokens() ([]farm.JoinToken, error)           { return nil, errLater }
func (t *Tx) PutJoinToken(k farm.JoinToken) error             { return errLater }

// Stream is a stream that a server waits for a host to bring.
type Stream struct {
	ID, Host, VM, Kind string
	Port               int
	Server             string // URL
	Created            time.Time
}

func (t *Tx) Streams(host string) ([]Stream, error) { return nil, errLater }
func (t *Tx) PutStream(s Stream) error              { return errLater }
func (t *Tx) DeleteStream(id string) error          { return errLater }

// Setting is a named JSON text: the certificate authority, settings of all hosts.
func (t *Tx) Setting(name string) ([]byte, error)        { return nil, errLater }
func (t *Tx) PutSetting(name string, value []byte) error { return errLater }

// Audit adds an entry; Entries are the newest first, behind an ID when before is not 0.
func (t *Tx) Audit(e farm.Entry) error { return errLater }
func (t *Tx) Entries(project, who string, before int64, limit int) ([]farm.Entry, error) {
	return nil, errLater
}

// Answer is the kept answer to a create with this idempotency key; NotFound: there is none. The digest tells another request under the same key.
func (t *Tx) Answer(who, key string) (digest, answer []byte, err error)            { return nil, nil, errLater }
func (t *Tx) PutAnswer(who, key string, digest, answer []byte, at time.Time) error { return errLater }

// Prune drops answers and audit entries that are older.
func (t *Tx) Prune(answers, entries time.Time) error { return errLater }

// Fence fails with farm.Conflict when the lease is another's by now.
func (t *Tx) Fence(epoch int64) error { return errLater }
