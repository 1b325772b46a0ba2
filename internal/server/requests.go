package server

import (
	"net/netip"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

// CreateVM asks for VMs. Zero values leave the choice to the shape, the project or the site.
type CreateVM struct {
	Project  string
	Name     string // a host name's label
	Count    int    // above 1 the names are NAME-1 and so on; all are made or none
	Image    string
	Shape    string // by name
	CPUs     int    // instead of what the shape says, as the next four
	Memory   farm.Bytes
	Scratch  *farm.Bytes
	Disks    *api.Disks // what it leaves out is as the shape says
	CPUModel string
	Display  bool
	Guest    farm.GuestTopology
	Cell     string
	Network  string
	Address  netip.Addr // a static one; only of a single VM
	Group    string
	// SecurityGroups are names; nil: what the project says
	SecurityGroups []string
	Needs          []string
	Tags           map[string]string
	Keys           []string // public SSH keys, as in authorized_keys
	NewKey         bool     // make a key; its private half is in Created
	UserData       []byte
	Expires        time.Time

	Once string // idempotency key: the same request under the same key makes its VMs once; "": none
}

// Created is the answer to CreateVM.
type Created struct {
	VMs        []VMView
	PrivateKey string // OpenSSH's format; kept nowhere
	Again      bool   // the answer to an earlier request with this key: PrivateKey is empty, for it was told then
}

// UpdateVM changes a VM; what is nil stays.
type UpdateVM struct {
	Expires        *time.Time // the zero time: never, where the project lets VMs live so long
	Tags           *map[string]string
	SecurityGroups *[]string
}

// ResizeVM gives a VM another size; zero values stay as they are, or as Shape says.
type ResizeVM struct {
	Shape  string
	CPUs   int
	Memory farm.Bytes
}

// VMFilter chooses VMs; zero fields choose all that the caller may see.
type VMFilter struct {
	Project, Cell, Host, Owner, Group string // Host by name or ID
	State                             farm.VMState
	Name                              string            // a pattern, as path.Match has them
	Tags                              map[string]string // all of these; an empty value: whatever the value is
	After                             string            // VMList.Next
	Limit                             int               // 0: 100; at most 1000
}

// HostFilter chooses hosts.
type HostFilter struct {
	Cell     string
	Patterns []string // of names, as path.Match has them, or IDs; none: all
	State    HostState
	After    string // a name: those behind it
	Limit    int    // 0: all
}

// DrainOrder says how hosts or a cell are emptied.
type DrainOrder struct {
	Deadline time.Time // VMs that run then are stopped; zero: never
	Reason   string
}

// LabelOrder changes labels of hosts.
type LabelOrder struct {
	Set        map[string]string
	Remove     []string
	IfRevision int64 // of each host; 0: whatever it is
}

// EntryFilter chooses lines of the audit log, newest first.
type EntryFilter struct {
	Project, Who string
	Before       int64 // Entry.ID; 0: from the newest
	Limit        int   // 0: 100; at most 1000
}

// WatchFilter chooses changes before what has changed is read; zero fields choose all.
type WatchFilter struct {
	Kinds   []string // store.Kind
	Project string   // of VMs; those that are gone are told whatever their project was
}

// Watched is one thing that changed, as the caller may see it. At most one of VM, Host and Cell is there; none with
// Deleted, and none for kinds whose content is asked for by their own actions.
type Watched struct {
	Revision int64
	Kind     string // store.Kind
	ID       string
	Deleted  bool
	VM       *VMView
	Host     *HostView
	Cell     *CellView
}
