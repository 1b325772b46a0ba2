package runner

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/grange-project/grange/api"
)

// notes tell why a job has not started yet. Whoever waits is told after a moment what for, and again every few seconds.
// In the place of a batch job our errors are the job's, which are kept, compared and parsed: there a note must have
// been true for a while before it is told, it is told again ever more rarely, and none follows the job's start.
type notes struct {
	out   io.Writer
	after time.Duration // that a note is held back; 0: told at once
	pause func(told int) time.Duration
	event func(api.JobEvent) // is told instead of out; nil: out is
	quiet bool               // nothing is told

	mu      sync.Mutex
	pending string      // the newest that is held back
	timer   *time.Timer // of the oldest since the last one told
	closed  bool
	doing   string    // what is waited for
	since   time.Time // doing
	last    time.Time // something was told, or doing began after the notes were opened
	told    int       // reminders since then
	changed chan struct{}
}

// batchNotes is how long a batch job waits before it says so.
const batchNotes = time.Minute

// often is when somebody at a terminal is told what is waited for: after 3 seconds, and then every 4.
func often(told int) time.Duration {
	if told == 0 {
		return 3 * time.Second
	}
	return 4 * time.Second
}

// seldom is when a batch job's errors say so: after a minute, for its output is kept and compared, then each time after
// twice as long, up to ten minutes.
func seldom(told int) time.Duration { return min(batchNotes<<min(told, 10), 10*time.Minute) }

func newNotes(out io.Writer) *notes {
	return &notes{out: out, pause: often, changed: make(chan struct{}, 1)}
}

// wait reports what is waited for from now on, "" for nothing.
func (n *notes) wait(doing string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if n.doing == "" {
		n.last, n.told = now, 0
	}
	if doing != n.doing {
		n.doing, n.since = doing, now
	}
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// remind prints again and again what is waited for, until done is closed.
func (n *notes) remind(done <-chan struct{}) {
	for {
		n.mu.Lock()
		var due <-chan time.Time
		if n.doing != "" && !n.closed {
			left := time.Until(n.last.Add(n.pause(n.told)))
			if left <= 0 {
				n.told++
				n.printLocked(fmt.Sprintf("waiting: %s (%.0f s)", n.doing, time.Since(n.since).Seconds()))
				left = n.pause(n.told)
			}
			due = time.After(left)
		}
		n.mu.Unlock()
		select {
		case <-due:
		case <-n.changed:
		case <-done:
			return
		}
	}
}

func (n *notes) printLocked(text string) {
	n.last = time.Now()
	switch {
	case n.quiet:
	case n.event != nil:
		n.event(api.JobEvent{Event: api.EventWaiting, Message: text})
	default:
		fmt.Fprintln(n.out, "grange: "+text)
	}
}

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
		n.printLocked(n.pending)
	}
	n.timer = nil
}

// close drops what has not been told, and all that comes.
func (n *notes) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
}

// open lets notes through again, behind a job's end.
func (n *notes) open() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed, n.pending, n.doing = false, "", ""
}

// phases are what the agent does for a job, in this order: each is waited for when the one before has ended.
var phases = []struct{ name, doing string }{
	{"grant", "room on this host"},
	{"image", "the image"},
	{"disk", "the VM's disks"},
	{"define", "libvirt makes the VM"},
	{"boot", "the VM boots"},
	{"guest", "the VM takes the job"},
}

// waitingFor is what is waited for behind an event, as far as it says so.
func waitingFor(e api.JobEvent) (doing string, known bool) {
	switch {
	case e.Event == api.EventWaiting:
		return e.Message, true
	case e.Event == api.EventRetry:
		return phases[2].doing, true
	case e.Event == api.EventPaused:
		return "somebody resumes the VM", true
	case e.Event == api.EventReady:
		return "the agent says that the job runs", true
	case e.Event == api.EventRunning, e.Event == api.EventEnded:
		return "", true
	case e.Phase == nil:
		return "", false
	}
	for i, p := range phases[:len(phases)-1] {
		if p.name == e.Phase.Name {
			return phases[i+1].doing, true
		}
	}
	return "", false
}
