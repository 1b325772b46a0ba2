// Package hostlink is the server's side of the link to hosts: it lets them join, takes over what they report, tells
// them what is wanted, and keeps the authorities that vouch for them. internal/uplink is the other side.
package hostlink

import (
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"log/slog"
	"sync"
	"time"

	"github.com/grange-project/grange/api"
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
	Actions action.Actions
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
	*hosts
	*fleetCA
	actions  action.Actions
	refusals throttle.Buckets // enrolments that leave an entry in the audit log, by join token

	mu         sync.Mutex
	settings   fleet.Settings // of all hosts
	drains     []api.FileSystemDrain
	catalogue  int64 // revision of the catalogue of images, as it was then
	settingsAt int64 // revision at which these were read; 0: never
}

// New makes the links of a server that is up from now on.
func New(o Options) *Links {
	o.Silence = cmp.Or(o.Silence, silence)
	s := &Links{Options: o, actions: o.Actions,
		refusals: throttle.Buckets{Size: 3, Leak: time.Minute, Now: o.Now}}
	s.hosts = &hosts{Options: &s.Options, Since: o.Now(), byID: map[string]*link{}}
	s.fleetCA = &fleetCA{Options: &s.Options, hosts: s.hosts, actions: s.actions,
		peers:    map[[sha256.Size]byte]pki.Peer{},
		renewals: throttle.Buckets{Size: 20, Leak: renewEach, Now: o.Now},
		doubts:   throttle.Buckets{Size: 20, Leak: doubtEach, Now: o.Now}}
	return s
}
