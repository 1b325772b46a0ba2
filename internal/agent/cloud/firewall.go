package cloud

import (
	"context"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/network"
)

// flows is whether this host holds VMs to security groups. A kernel that does will do so until it is booted.
type flows struct {
	mu     sync.Mutex
	does   bool
	looked time.Time // by the monotonic clock; zero: never
}

const (
	flowsEvery = time.Minute
	flowsLimit = 15 * time.Second
)

// followed looks again and again as long as the host does not, for somebody may install what is missing.
func (f *flows) followed(h *Host) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.does || !f.looked.IsZero() && time.Since(f.looked) < flowsEvery {
		return f.does
	}
	ctx, cancel := context.WithTimeout(context.Background(), flowsLimit)
	defer cancel()
	err := network.HoldsGroups(ctx)
	if err != nil && f.looked.IsZero() {
		h.log.Info("no vms in security groups come here", "reason", err)
	}
	f.does, f.looked = err == nil, time.Now()
	return f.does
}

// refence holds a VM that runs to other security groups than before. What fails is tried again every few seconds, with
// the networks of all VMs.
func (v *VM) refence() {
	m := v.Current()
	if m == nil || m.Applied.PID == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(v.host.ctx, refenceLimit)
	defer cancel()
	if err := v.host.Machines.Fence(ctx, networkVM(m.Name, v.recordNow()), m.Applied.PID); err != nil {
		v.log().Error("the security groups of a vm are not changed yet", "error", err)
	}
}

const refenceLimit = 30 * time.Second
