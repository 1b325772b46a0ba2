// Package server is every action on the fleet, and the loops that keep it as wanted. It decides by policy and
// placement, acts on the store, and knows hosts by what they report. It never speaks HTTP.
package server

import (
	"cmp"
	"crypto/x509"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pki"
	"github.com/grange-project/grange/internal/placer"
	"github.com/grange-project/grange/internal/sdnotify"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/throttle"
)

// Options is what a server is made of.
type Options struct {
	Store   *store.Store
	Log     *slog.Logger
	Now     func() time.Time // nil: time.Now
	URL     string           // by which hosts and other servers reach this one
	Version string
	Silence time.Duration // after which a host that does not report is silent; 0: 90 s
	// Servers are the URLs of all servers of the fleet, as hosts are told; none: URL.
	Servers []string
	// ListenerCAs vouch for the certificate that this server's listener shows, where the site brought one; none: the
	// fleet's CA does.
	ListenerCAs []*x509.Certificate
	// CAKeyFile seals the key of the fleet's authority in the store. It is made where the store has no sealed one; all
	// servers have the same.
	CAKeyFile string
	// vouches for hosts too, whose certificates the site issues; nil: nobody but the fleet's CA
	Site *pki.Site
	// Broker is the batch system of a cell whose broker is not grange.
	Broker func(farm.Cell) (batch.System, error)
	// Brokers are what cells can name as their broker besides grange.
	Brokers []string
}

// Server is one of the servers of a fleet. All of them answer requests; the one that leads runs the loops.
type Server struct {
	store   *store.Store
	log     *slog.Logger
	now     func() time.Time
	url     string
	broker  func(farm.Cell) (batch.System, error)
	known   []string // names of brokers
	hub     *hub
	streams *streams

	mirror  *placer.Mirror                // for the placer, and for explanations
	placer  atomic.Pointer[placer.Placer] // nil: another server leads
	unmoved unmoved                       // VMs for which drains found no host

	cursors     cursors
	links       *links
	refusals    throttle.Buckets // enrolments that leave an entry in the audit log, by join token
	renewals    throttle.Buckets // hosts that are asked to renew their certificates
	doubts      throttle.Buckets // of what this server knows of the fleet's authorities
	servers     []string
	listenerCAs []*x509.Certificate
	caKeyFile   string
	site        *pki.Site

	silence time.Duration
	since   time.Time // this server is up
	leads   atomic.Bool
	leasing sdnotify.Loop // lead

	// when any host was last heard of before this server came up, in nanoseconds since 1970; 0: not known
	lastHeard atomic.Int64

	booked      map[string]*bookings // by cell; of the loop of brokers
	explaining  chan struct{}        // has a token while a batch system is asked for somebody's explanation
	silentHosts map[string]bool      // when the loop looked last, by ID; the loop's own
}

// silence is three reports that a host owes.
const silence = 90 * time.Second

// New makes a server; Run makes its loops work.
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{store: o.Store, log: o.Log, now: o.Now, url: o.URL, broker: o.Broker,
		known: append([]string{farm.BrokerGrange}, o.Brokers...), hub: newHub(), streams: newStreams(),
		booked: map[string]*bookings{}, explaining: make(chan struct{}, 1), silence: cmp.Or(o.Silence, silence),
		since: o.Now(), links: newLinks(), servers: o.Servers, listenerCAs: o.ListenerCAs, caKeyFile: o.CAKeyFile,
		site: o.Site, refusals: throttle.Buckets{Size: 3, Leak: time.Minute, Now: o.Now},
		renewals: throttle.Buckets{Size: 20, Leak: renewEach, Now: o.Now},
		doubts:   throttle.Buckets{Size: 20, Leak: doubtEach, Now: o.Now}}
	s.mirror = placer.NewMirror(placer.Options{Store: o.Store, Log: o.Log, Now: o.Now, Silent: s.silentSince,
		Reserve: s.book})
	return s
}
