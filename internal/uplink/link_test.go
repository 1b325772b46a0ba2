package uplink_test

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/apiserver"
	"github.com/grange-project/grange/internal/authn"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server"
	"github.com/grange-project/grange/internal/server/hostlink"
	"github.com/grange-project/grange/internal/sim"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/uplink"
)

var root = farm.Identity{Root: true, Means: "socket", Source: "0"}

// site is a server with its door open on loopback: real TLS, a real store.
type site struct {
	*server.Server
	t       *testing.T
	store   *store.Store
	address string
	url     string
	clock   time.Duration                   // of the server, ahead of ours
	keys    string                          // its ca_key_file
	front   func(http.Handler) http.Handler // nil: none
	stop    func()
}

func newSite(t *testing.T) *site                        { return newSiteWith(t, "127.0.0.1:0", 0) }
func newSiteAt(t *testing.T, clock time.Duration) *site { return newSiteWith(t, "127.0.0.1:0", clock) }
func newSiteOn(t *testing.T, address string) *site      { return newSiteWith(t, address, 0) }

func newSiteWith(t *testing.T, address string, clock time.Duration) *site {
	t.Helper()
	st, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "farm.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	s := &site{t: t, store: st, address: address, clock: clock, keys: filepath.Join(t.TempDir(), "ca.key")}
	s.update(func(tx *store.Tx) error {
		return errors.Join(tx.PutCell(farm.Cell{Name: "east", Default: true}.WithDefaults()),
			tx.PutProject(farm.Project{Name: "alice"}),
			tx.PutShape(farm.Shape{Name: "small", CPUs: 2, Memory: 2 * farm.GiB, Network: farm.NetworkNone}))
	})
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

// start opens the door, on the same port each time.
func (s *site) start() {
	s.t.Helper()
	l, err := net.Listen("tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.address = l.Addr().String()
	s.url = "https://" + s.address
	log := slog.New(slog.NewTextHandler(s.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	s.Server = server.New(server.Options{Store: s.store, Log: log, URL: s.url, Now: s.now, CAKeyFile: s.keys,
		ImageDir: filepath.Join(filepath.Dir(s.keys), "images")})
	trust := apiserver.TLS(s.Links.ListenerCertificates([]string{"127.0.0.1"}).Get)
	door := apiserver.New(apiserver.Options{Server: s.Server,
		Authn: authn.New(authn.Options{Directory: s.Server.Directory()}),
		Log:   log, Version: "test"})
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	if s.front == nil {
		all.Go(func() { door.Serve(ctx, tls.NewListener(l, trust)) })
	} else {
		front := &http.Server{Handler: s.front(door)}
		all.Go(func() { front.Serve(tls.NewListener(l, trust)) })
		context.AfterFunc(ctx, func() { front.Close() })
	}
	all.Go(func() { s.Run(ctx) })
	s.stop = sync.OnceFunc(func() { cancel(); all.Wait() })
}

func (s *site) now() time.Time { return time.Now().Add(s.clock) }

func (s *site) update(do func(*store.Tx) error) {
	s.t.Helper()
	if _, err := s.store.Update(context.Background(), do); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) token(o hostlink.JoinOrder) string {
	s.t.Helper()
	o.Cell = "east"
	_, text, err := s.Links.CreateJoinToken(context.Background(), root, o)
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

// eventually waits for what other goroutines bring about.
func (s *site) eventually(what string, is func() bool) {
	s.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	// a poll that a server which was stopped never answers is found out by the next report, after half a minute
	late := time.After(90 * time.Second)
	for !is() {
		select {
		case <-tick.C:
		case <-late:
			s.t.Fatalf("not in time: %s", what)
		}
	}
}

// host joins, and is linked until the test ends or stop is called.
type host struct {
	*sim.Host
	id   uplink.Identity
	dir  *os.Root
	stop func()
}

func (s *site) dir() *os.Root {
	dir, err := os.OpenRoot(s.t.TempDir())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { dir.Close() })
	return dir
}

func (s *site) join(name string) *host {
	s.t.Helper()
	h := &host{Host: newHost(), dir: s.dir()}
	id, err := uplink.Join(s.t.Context(),
		uplink.JoinOptions{Dir: h.dir, Server: s.url, Token: s.token(hostlink.JoinOrder{}), Name: name,
			MachineID: name})
	if err != nil {
		s.t.Fatal(err)
	}
	h.id = id
	s.link(h)
	return h
}

func newHost() *sim.Host {
	return sim.NewHost(sim.HostOptions{Version: "test",
		Hardware: sim.Hardware{Sockets: 1, Cores: 8, Memory: 64 * farm.GiB}, Images: []string{"micro"}})
}

func (s *site) link(h *host) { s.linkTo(h) }

// linkTo is link, by way of other servers first.
func (s *site) linkTo(h *host, servers ...string) {
	s.t.Helper()
	l, err := uplink.New(uplink.Options{Dir: h.dir, Host: h.Host, Servers: servers,
		Log: slog.New(slog.NewTextHandler(s.t.Output(), nil))})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { l.Run(ctx) })
	h.stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	s.t.Cleanup(h.stop)
}

// row is a host as the store has it.
func (s *site) row(id string) (h farm.Host) {
	s.t.Helper()
	if err := s.store.View(context.Background(),
		func(tx *store.Tx) (err error) { h, err = tx.Host(id); return err }); err != nil {
		s.t.Fatal(err)
	}
	return h
}

// vm makes a VM and gives it a place, as the placer does.
func (s *site) vm(name string, h *host) farm.VM {
	s.t.Helper()
	made, err := s.VMs.Create(context.Background(), root,
		server.CreateVM{Project: "alice", Name: name, Image: "micro", Shape: "small"})
	if err != nil {
		s.t.Fatal(err)
	}
	vm := made.VMs[0].VM
	s.update(func(tx *store.Tx) error {
		vm, err := tx.VM(vm.ID)
		if err != nil {
			return err
		}
		vm.Host, vm.Cell = h.id.Host, "east"
		return tx.SetVMPlace(vm)
	})
	return vm
}

func (s *site) state(id string) farm.VMState {
	var state farm.VMState
	err := s.store.View(context.Background(), func(tx *store.Tx) error {
		vm, err := tx.VM(id)
		state = vm.Observed.State
		return err
	})
	if err != nil {
		return "no row"
	}
	return state
}

func TestLifeOfAVM(t *testing.T) {
	s := newSite(t)
	h := s.join("wn-1")
	s.eventually("facts", func() bool { return s.row(h.id.Host).Facts.Version == "test" })
	vm := s.vm("web", h)
	s.eventually("running", func() bool { return s.state(vm.ID) == farm.VMRunning })
	if _, err := s.VMs.Stop(t.Context(), root, vm.ID, 0); err != nil {
		t.Fatal(err)
	}
	s.eventually("stopped", func() bool { return s.state(vm.ID) == farm.VMStopped })
	if _, err := s.VMs.Delete(t.Context(), root, vm.ID, 0); err != nil {
		t.Fatal(err)
	}
	s.eventually("gone", func() bool { return s.state(vm.ID) == "no row" })
	s.eventually("forgotten by its host", func() bool { vms, _ := h.Observed(); return len(vms) == 0 })
}

func TestServerComesBack(t *testing.T) {
	s := newSite(t)
	h := s.join("wn-1")
	s.eventually("facts", func() bool { return s.row(h.id.Host).Facts.Version == "test" })
	s.stop()
	s.start()
	vm := s.vm("web", h)
	s.eventually("running", func() bool { return s.state(vm.ID) == farm.VMRunning })
}

func TestStream(t *testing.T) {
	s := newSite(t)
	h := s.join("wn-1")
	vm := s.vm("web", h)
	s.eventually("running", func() bool { return s.state(vm.ID) == farm.VMRunning })
	c, err := s.Streams.Open(t.Context(), root, vm.ID, "console", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := c.Read(got); err != nil || string(got) != "hello" {
		t.Errorf("%q %v", got, err)
	}
}
