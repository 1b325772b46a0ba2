package agent

import (
	"net/http"
	"os"

	"github.com/grange-project/grange/internal/agent/meter"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/ledger"
	"github.com/grange-project/grange/internal/metrics"
	"github.com/grange-project/grange/internal/numa"
)

// metering is what is exported of this host: each figure is read of what the agent has anyway.
type metering struct{ *Agent }

// newMeter returns a meter that reads them.
func (a metering) newMeter() *meter.Meter {
	return meter.New(meter.Host{Version: a.version, Accelerator: a.accelerator, Kernel: os.DirFS("/"), VMs: a.allVMs,
		Known: a.isKnown, BackOffs: a.healing.backOffs, Topology: a.topology, Images: a.images.List,
		Daemon: func() hyper.Daemon { return a.hyper.Daemon() }, Link: a.link,
		TakesVMs: func() bool { return len(a.machines.TakesNothing()) == 0 },
		Room: func() (numa.Room, int) {
			room, _, waiting := a.ledger.View(0)
			return room, waiting
		},
		Disks: func() (farm.DiskSpace, error) { return a.ledger.DiskSpace(ledger.JobFiles) },
		PerVM: func() bool { return a.config().Metrics.VMs }})
}

// allVMs are all VMs, with their machines.
func (a metering) allVMs() (all []meter.VM) {
	for _, v := range a.all() {
		all = append(all, meter.Of(v.view(nil), v.current()))
	}
	for _, v := range a.Cloud.All() {
		all = append(all, meter.Of(v.View(true), v.Current()))
	}
	return all
}

// getMetrics shows to everybody what is of the host, and what is of single VMs to those who may see all of them.
func (a routes) getMetrics(w http.ResponseWriter, r *http.Request, c Caller) error {
	var hidden []string
	if !a.maySee(c, nobody) {
		hidden = []string{meter.OfVMs}
	}
	a.meter.Handler(hidden...).ServeHTTP(w, r)
	return nil
}

// serveMetrics does so on a port, where the configuration says so, until the agent ends.
func (a metering) serve() {
	c := a.config().Metrics
	var hidden []string
	if c.TokenFile == "" && a.config().PrivateVMs { // every account of the host reaches that port
		hidden = []string{meter.OfVMs}
	}
	metrics.Listener{Address: c.Listen, TokenFile: c.TokenFile}.Serve(a.ctx, a.meter.Handler(hidden...), a.log)
}

// link reports whether the link to the server works, and whether this host is to have one.
func (a metering) link() (up, wanted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.linked && a.noLink == nil, a.linked || len(a.cfg.Server.URLs) > 0
}
