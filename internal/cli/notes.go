package cli

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// notes tell why a job has not started yet. In the place of a batch job our errors are the job's, which are compared and parsed: there a note
// must have been true for a while before it is told, and none follows the job's start.
type notes struct {
	out   io.Writer
	after time.Duration // 0: at once

	mu      sync.Mutex
	pending string      // the newest that is held back
	timer   *time.Timer // of the oldest since the last one told
	closed  bool
}

// batchNotes is how long a batch job waits before it says so.
const batchNotes = 10 * time.Second

// say takes the place of a note that has not been told yet.
func (n *notes) say(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pending = fmt.Sprintf(format, args...)
	if n.after == 0 {
		n.tell()
	} else if n.timer == nil {
		n.timer = time.AfterFunc(n.after, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.tell()
		})
	}
}

func (n *notes) tell() {
	if !n.closed {
		fmt.Fprintln(n.out, n.pending)
	}
	n.timer = nil
}

// close drops what has not been told, and all that comes.
func (n *notes) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
}
