package inside

import (
	"io"
	"sync"
	"time"
)

// holdLimit is how long a guest that runs holds. The time of a machine that is stopped does not count.
const holdLimit = 5 * time.Second

// hold keeps back what comes by the job ports, from when the machine is about to be stopped until its clock is right
// again.
type hold struct {
	mu       sync.Mutex
	released chan struct{} // nil: nothing is held
	limit    *time.Timer
}

func (h *hold) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released == nil {
		h.released = make(chan struct{})
		h.limit = time.AfterFunc(holdLimit, h.end)
	}
	h.limit.Reset(holdLimit)
}

func (h *hold) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released != nil {
		h.limit.Stop()
		close(h.released)
		h.released = nil
	}
}

// wait returns when nothing is held.
func (h *hold) wait() {
	h.mu.Lock()
	released := h.released
	h.mu.Unlock()
	if released != nil {
		<-released
	}
}

// heldPort is a port of which nothing is read while the guest holds.
type heldPort struct {
	io.ReadWriteCloser
	hold *hold
}

func (p heldPort) Read(b []byte) (int, error) {
	n, err := p.ReadWriteCloser.Read(b)
	p.hold.wait()
	return n, err
}
