package cloud

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/network"
)

// flows is whether this host holds VMs to security groups. A kernel that does will do so until it is booted.
type flows struct {
	mu      sync.Mutex
	does    bool
	looking bool
	looked  time.Time // by the monotonic clock; zero: never
}

const (
	flowsEvery = time.Minute
	flowsLimit = 15 * time.Second
)

// followed reports what was found out last, and waits for nothing. As long as the host does not, it looks again and
// again: somebody may install what is missing.
func (f *flows) followed(log *slog.Logger) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.does && !f.looking && (f.looked.IsZero() || time.Since(f.looked) > flowsEvery) {
		f.looking = true
		go f.look(log)
	}
	return f.does
}

func (f *flows) look(log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), flowsLimit)
	defer cancel()
	err := network.HoldsGroups(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil && f.looked.IsZero() {
		log.Info("no vms in security groups come here", "reason", err)
	}
	f.does, f.looking, f.looked = err == nil, false, time.Now()
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
