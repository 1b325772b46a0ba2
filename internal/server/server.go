// Package server is every action on the fleet, and the loops that keep it as wanted. It decides by policy and
// placement, acts on the store, and knows hosts by what they report. It never speaks HTTP.
package server

import (
	"crypto/x509"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pki"
	"github.com/grange-project/grange/internal/placer"
	"github.com/grange-project/grange/internal/sdnotify"
	"github.com/grange-project/grange/internal/server/accounts"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/server/apply"
	"github.com/grange-project/grange/internal/server/broker"
	"github.com/grange-project/grange/internal/server/filesystems"
	"github.com/grange-project/grange/internal/server/history"
	"github.com/grange-project/grange/internal/server/hostlink"
	"github.com/grange-project/grange/internal/server/hostmap"
	"github.com/grange-project/grange/internal/server/hub"
	"github.com/grange-project/grange/internal/server/images"
	"github.com/grange-project/grange/internal/server/incidents"
	"github.com/grange-project/grange/internal/server/meter"
	"github.com/grange-project/grange/internal/server/usage"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/transfer"
	"github.com/grange-project/grange/internal/vmimage"
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
	// Transfers gives images to hosts; nil: nobody does.
	Transfers *transfer.Source
	// ImageDir has the files of the catalogue of images; "": this server keeps none. ImageSpace is the most that they
	// may take; 0: what is free.
	ImageDir   string
	ImageSpace farm.Bytes
	// ImagePace bounds how fast this server downloads images from their sources; nil: nothing does.
	ImagePace vmimage.Pace
	// FileSystems are the network file systems that the site declares.
	FileSystems []farm.FileSystem
	Sessions    accounts.SessionLimits
	// History is a file that keeps what the fleet was like; "": it is forgotten at the end.
	History string
	// Usage is what the site says of records of usage: VOs, Keep and Mask of it.
	Usage usage.Options
}

// Server is one of the servers of a fleet. All of them answer requests; the one that leads runs the loops.
type Server struct {
	VMs            VMs
	Hosts          Hosts
	Cells          Cells
	Groups         Groups
	SecurityGroups SecurityGroups
	Streams        Streams
	Links          *hostlink.Links // to hosts
	Accounts       *accounts.Accounts
	Farm           *apply.Farm // as farm files declare it
	// Transfers gives images to hosts; nil: nobody does.
	Transfers *transfer.Source
	Images    *images.Catalogue

	FileSystems *filesystems.FileSystems
	Meter       *meter.Meter // what this server exports
	Usage       *usage.Usage
	Incidents   *incidents.Incidents // shared records of problems

	store   *store.Store
	log     *slog.Logger
	now     func() time.Time
	url     string
	hub     *hub.Hub
	actions action.Actions
	streams *streams

	mirror  *placer.Mirror                // for the placer, and for explanations
	placer  atomic.Pointer[placer.Placer] // nil: another server leads
	unmoved unmoved                       // VMs for which drains found no host

	hostMap *hostmap.Map // for pages

	cursors cursors
	leads   atomic.Bool
	leasing sdnotify.Loop // lead

	brokers *broker.Brokers // of cells of batch systems
	upkeep  *upkeep
	history *history.History
}

// New makes a server; Run makes its loops work.
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{store: o.Store, log: o.Log, now: o.Now, url: o.URL, Transfers: o.Transfers,
		hub: hub.New(hostlink.KeyOf), streams: newStreams()}
	s.VMs, s.Hosts, s.Cells, s.Groups, s.Streams = VMs{s}, Hosts{s}, Cells{s}, Groups{s}, Streams{s}
	s.SecurityGroups = SecurityGroups{s}
	s.upkeep = &upkeep{server: s}
	s.actions = action.New(o.Store, o.Log, o.Now)
	s.Links = hostlink.New(hostlink.Options{Actions: s.actions, Store: o.Store, Log: o.Log, Now: o.Now, URL: o.URL,
		Servers: o.Servers,
		Silence: o.Silence, ListenerCAs: o.ListenerCAs, CAKeyFile: o.CAKeyFile, Site: o.Site, Hub: s.hub,
		EndVM: s.endVM})
	s.hostMap = hostmap.New(o.Store, o.Now)
	s.Accounts = accounts.New(s.actions, o.Sessions)
	s.FileSystems = filesystems.New(s.actions, o.FileSystems)
	o.Usage.Actions, o.Usage.Store, o.Usage.Log, o.Usage.Silent = s.actions, o.Store, o.Log, s.Links.Silent
	s.Usage = usage.New(o.Usage)
	s.Incidents = incidents.New(s.actions)
	s.Farm = apply.New(s.actions, append([]string{farm.BrokerGrange}, o.Brokers...))
	s.Images = images.New(images.Options{Actions: s.actions, Store: o.Store, Log: o.Log, Now: o.Now, URL: o.URL,
		Dir: o.ImageDir, Limit: o.ImageSpace, Pace: o.ImagePace, Silent: s.Links.Silent})
	brokers := broker.Options{Store: o.Store, Log: o.Log, Now: o.Now, System: o.Broker, Closed: s.closed,
		Stage: s.Images.Stage, EndVM: s.endVM}
	if o.Usage.HostJobs {
		brokers.ReadEnded = s.Usage.ReadEnded
	}
	s.brokers = broker.New(brokers)
	s.mirror = placer.NewMirror(placer.Options{Store: o.Store, Log: o.Log, Now: o.Now, Silent: s.Links.SilentSince,
		Reserve: s.brokers.Reserve, Placed: func(n int, took time.Duration) { s.Meter.Placed(n, took) }})
	s.Meter = s.newMeter(o.Version)
	var err error
	if s.history, err = history.New(o.History); err != nil {
		s.log.Error("the fleet's history is begun anew", "error", err)
	}
	return s
}
