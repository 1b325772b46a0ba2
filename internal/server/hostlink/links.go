// Package hostlink is the server's side of the link to hosts: it lets them join, takes over what they report, tells
// them what is wanted, and keeps the authorities that vouch for them. internal/uplink is the other side.
package hostlink

import (
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pki"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/server/hub"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/throttle"
)

// Options is what links are made of.
type Options struct {
	Store   *store.Store
	Log     *slog.Logger
	Now     func() time.Time
	URL     string        // by which hosts and other servers reach this one
	Servers []string      // URLs of all servers of the fleet, as hosts are told; none: URL
	Silence time.Duration // after which a host that does not report is silent; 0: 90 s
	// ListenerCAs vouch for the certificate that this server's listener shows; none: the fleet's CA does.
	ListenerCAs []*x509.Certificate
	CAKeyFile   string    // seals the key of the fleet's authority in the store
	Site        *pki.Site // vouches for hosts too; nil: nobody but the fleet's CA

	Hub *hub.Hub // wakes hosts that wait for their wanted lists
	// EndVM enters that nothing of a VM is left on any host.
	EndVM func(t *store.Tx, vm farm.VM, why string) error
}

// silence is three reports that a host owes.
const silence = 90 * time.Second

// Links are those of one server. What they keep in memory is in the store too, or comes with the next report.
type Links struct {
	Options
	actions action.Actions
	Since   time.Time // this server is up
	// when any host was last heard of before this server came up, in nanoseconds since 1970; 0: not known
	lastHeard atomic.Int64

	refusals throttle.Buckets // enrolments that leave an entry in the audit log, by join token
	renewals throttle.Buckets // hosts that are asked to renew their certificates
	doubts   throttle.Buckets // of what this server knows of the fleet's authorities

	mu         sync.Mutex
	cas        authorities
	due        string                         // what RetireDue, which alone uses it, found due last time
	hosts      map[string]*link               // by ID
	settings   fleet.Settings                 // of all hosts
	settingsAt int64                          // revision at which they were read; 0: never
	peers      map[[sha256.Size]byte]pki.Peer // verified certificates; with a host's ID in each
}

// New makes the links of a server that is up from now on.
func New(o Options) *Links {
	o.Silence = cmp.Or(o.Silence, silence)
	return &Links{Options: o, actions: action.Actions{Store: o.Store, Log: o.Log, Now: o.Now}, Since: o.Now(),
		hosts: map[string]*link{}, peers: map[[sha256.Size]byte]pki.Peer{},
		refusals: throttle.Buckets{Size: 3, Leak: time.Minute, Now: o.Now},
		renewals: throttle.Buckets{Size: 20, Leak: renewEach, Now: o.Now},
		doubts:   throttle.Buckets{Size: 20, Leak: doubtEach, Now: o.Now}}
}
