package agent

import (
	"os"
	"path"
	"slices"
	"time"

	"github.com/grange-project/grange/internal/allotment"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology"
	"github.com/grange-project/grange/internal/wire"
)

func (a *Agent) config() config.Agent {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cfg.With(wire.ParseSettings(a.central))
}

// Reload takes over a changed configuration. What only a restart can change stays, and is logged.
func (a *Agent) Reload(c config.Agent) {
	old := a.config()
	if c.GuestFile == "" {
		c.GuestFile = old.GuestFile // found at the start
	}
	if c.Socket != old.Socket || c.SocketMode != old.SocketMode || c.StateDir != old.StateDir ||
		c.RunDir != old.RunDir || c.Libvirt != old.Libvirt || c.VMUIDs != old.VMUIDs || c.GuestFile != old.GuestFile ||
		c.Accelerator != old.Accelerator || c.Areas != old.Areas || c.Metrics.Listen != old.Metrics.Listen ||
		c.Metrics.TokenFile != old.Metrics.TokenFile {
		a.log.Warn("some changes need a restart", "keys",
			"socket, socket_mode, state_dir, run_dir, libvirt, vm_uids, guest_file, accelerator, areas, metrics.listen, "+
				"metrics.token_file")
	}
	c.Socket, c.SocketMode, c.StateDir, c.RunDir = old.Socket, old.SocketMode, old.StateDir, old.RunDir
	c.Libvirt, c.VMUIDs, c.GuestFile, c.Accelerator = old.Libvirt, old.VMUIDs, old.GuestFile, old.Accelerator
	c.Areas, c.Metrics.Listen, c.Metrics.TokenFile = old.Areas, old.Metrics.Listen, old.Metrics.TokenFile
	a.mu.Lock()
	a.cfg = c
	t := a.topo
	a.mu.Unlock()
	a.ledger.SetTopology(t.Overcommitted(c.MemoryOvercommit), reserve(c, t))
	a.ledger.SetLimits(c.Limits, c.Minimum.Disk)
	a.log.Info("configuration reloaded")
}

// rereadEvery is how often refusals may have the host read anew: whoever asks for the impossible again and again does
// not.
const rereadEvery = time.Second

// readHost reads the host anew for the ledger, unless that was done less than the given time ago. It returns what is
// known of the host.
func (a *Agent) readHost(unless time.Duration) farm.Topology {
	a.reading.Lock()
	defer a.reading.Unlock()
	a.mu.Lock()
	known := a.topo
	a.mu.Unlock()
	if unless > 0 && time.Since(a.hostRead) < unless {
		return known
	}
	t, err := topology.Read(os.DirFS("/"))
	if err != nil {
		a.log.Error("read the host's topology", "error", err)
		return known
	}
	a.hostRead = time.Now()
	a.mu.Lock()
	a.topo = t
	c := a.cfg
	a.mu.Unlock()
	a.ledger.SetTopology(t.Overcommitted(c.MemoryOvercommit), reserve(c, t))
	return t
}

func reserve(c config.Agent, host farm.Topology) numa.Reserve {
	var memory farm.Bytes
	for _, n := range host.Nodes {
		memory += n.Memory
	}
	return numa.Reserve{CPUs: c.ReservedCPUs, Memory: c.ReservedOf(memory)}
}

// topology is the host as it was read last.
func (a *Agent) topology() farm.Topology {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.topo
}

// readMetal reads the jobs that batch systems confine on this host.
func (a *Agent) readMetal() []farm.Allotment {
	return allotment.Running(allotment.Host(), a.ofThisHost)
}

// ofThisHost reports whether jobs of a slurmd are this host's.
func (a *Agent) ofThisHost(node string) bool {
	return slices.ContainsFunc(a.config().SlurmNodes, func(p string) bool {
		ok, err := path.Match(p, node)
		return ok &&
			err == nil
	})
}

// serveAfterMetal does so until the agent ends.
func (a *Agent) serveAfterMetal() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			a.ledger.ServeWaiting()
		case <-a.ctx.Done():
			return
		}
	}
}
