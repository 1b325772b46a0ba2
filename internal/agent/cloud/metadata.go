package cloud

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/metadata"
)

// metadataAgain is how long a bridge whose service has failed is left alone. The bridge may have to be made yet.
const metadataAgain = 10 * time.Second

// bridgeService is the metadata service of one bridge.
type bridgeService struct {
	requireToken bool
	index        int // of the bridge, which its socket is bound to; 0: there was none
	cancel       context.CancelFunc
	over         chan struct{} // closed when the service has ended; then the next two count
	err          error
	ended        time.Time
}

func (s *bridgeService) stop() { s.cancel(); <-s.over }

// failedLongAgo reports whether the service ended by itself, and it is time to try again.
func (s *bridgeService) failedLongAgo() bool {
	select {
	case <-s.over:
		return time.Since(s.ended) >= metadataAgain
	default:
		return false
	}
}

// ServeMetadata keeps a metadata service on each bridge that has cloud VMs, until the agent ends.
func (h *Host) ServeMetadata() {
	services := map[string]*bridgeService{}
	tick := time.NewTicker(metadataAgain)
	defer tick.Stop()
	for {
		changed := h.change()
		h.keepMetadata(services)
		select {
		case <-changed:
		case <-tick.C:
		case <-h.ctx.Done():
			for _, s := range services {
				s.stop()
			}
			return
		}
	}
}

// keepMetadata starts and stops services until there are those that are needed.
func (h *Host) keepMetadata(services map[string]*bridgeService) {
	c := h.config().Metadata
	needed := map[string]bool{}
	for _, w := range h.wanted() {
		bridge := hostNetwork(w).Bridge()
		if w.Bridge == "" && indexOf(bridge) == 0 {
			continue // it is made with the first VM that starts
		}
		if c.Serve && bridge != "" && w.Address != "" {
			needed[bridge] = true
		}
	}
	for bridge, s := range services {
		switch {
		case !needed[bridge]:
			s.stop()
			delete(services, bridge)
		case s.requireToken != c.RequireToken || s.failedLongAgo() || s.index != indexOf(bridge):
			s.stop()
			services[bridge] = h.startMetadata(bridge, c.RequireToken, s.err)
		}
	}
	for bridge := range needed {
		if services[bridge] == nil {
			services[bridge] = h.startMetadata(bridge, c.RequireToken, nil)
		}
	}
}

// startMetadata starts a bridge's service. before is why the last one failed: the same is not logged again.
func (h *Host) startMetadata(bridge string, requireToken bool, before error) *bridgeService {
	ctx, cancel := context.WithCancel(h.ctx)
	s := &bridgeService{requireToken: requireToken, index: indexOf(bridge), cancel: cancel, over: make(chan struct{})}
	go func() {
		defer close(s.over)
		s.err = metadata.Serve(ctx, metadata.Options{Bridge: bridge, RequireToken: requireToken, Log: h.log,
			Find: func(from netip.Addr) (metadata.VM, bool) { return h.metadataOf(bridge, from) }})
		s.ended = time.Now()
		if s.err != nil && (before == nil || before.Error() != s.err.Error()) {
			h.log.Error("vms cannot ask for their metadata", "bridge", bridge, "error", s.err)
		}
	}()
	return s
}

// indexOf is the number of an interface: one that was removed and made again has another; 0: there is none.
func indexOf(name string) int {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return 0
	}
	return i.Index
}

// metadataOf is what the VM on a bridge may know of itself that has leased an address.
func (h *Host) metadataOf(bridge string, from netip.Addr) (metadata.VM, bool) {
	for _, w := range h.wanted() {
		address, err := netip.ParsePrefix(w.Address)
		if err != nil || hostNetwork(w).Bridge() != bridge || address.Addr() != from {
			continue
		}
		mac, err := net.ParseMAC(w.MAC)
		return metadataFor(w, address, mac), err == nil
	}
	return metadata.VM{}, false
}

func metadataFor(w fleet.WantedVM, address netip.Prefix, mac net.HardwareAddr) metadata.VM {
	host, _ := os.Hostname()
	return metadata.VM{ID: w.ID, Name: w.Name, Project: w.Project, Owner: w.Owner, Hostname: cmp.Or(w.Hostname, w.Name),
		Cell: w.Cell, Host: host, Image: w.Image, Shape: w.Shape.Name, Address: address, MAC: mac, Keys: w.Keys,
		UserData: w.UserData, Tags: w.Tags}
}
