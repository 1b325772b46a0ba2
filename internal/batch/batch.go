package batch

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// System is one batch system. Its methods may be called by several goroutines. Errors are farm.Error: Unavailable when
// the system does not answer, NotFound, Conflict, Denied, Invalid as their words say.
type System interface {
	// Name says which system this is.
	Name() farm.BatchSystem
	// Demand is what pending jobs ask for that only more hosts or time will give them. Held jobs, and jobs that wait
	// for others, ask for nothing now. Jobs of the same request are one line.
	Demand(ctx context.Context) ([]Demand, error)
	// Nodes are the hosts that the system knows, in the order of their names.
	Nodes(ctx context.Context) ([]Node, error)
	// Ended are jobs that have ended, oldest first, each once, and the cursor behind the last of them. The zero Cursor
	// stands before the oldest that the system remembers. A cursor is good for any later process. Fewer than limit:
	// there are no more now.
	Ended(ctx context.Context, after Cursor, limit int) ([]Ended, Cursor, error)
	// Close keeps new jobs off a host; those on it go on. Closing a host that we closed changes the reason; one that
	// somebody else closed stays as it is, theirs.
	Close(ctx context.Context, host, reason string) error
	// Open lets jobs onto a host again. A host that somebody else closed stays closed: that is a Conflict. Opening an
	// open host is no error.
	Open(ctx context.Context, host string) error
	// Drain closes a host, also one that is closed, and returns the jobs that still run there.
	Drain(ctx context.Context, host, reason string) ([]Running, error)
	// Reserve takes capacity on one host away from jobs, for a cloud VM, under a project's account. A placeholder job
	// holds it; the VM is no node of the system. The reservation is known by its name from the moment Reserve was
	// called: calling again with this name returns the same reservation, never a second one. A host without room makes
	// a reservation that is not Held yet.
	Reserve(ctx context.Context, b Reservation) (Reserved, error)
	// Reserved returns the reservation of this name; NotFound when there is none any more.
	Reserved(ctx context.Context, name string) (Reserved, error)
	// Reservations are all that have not ended, ours by their names, whoever made them.
	Reservations(ctx context.Context) ([]Reserved, error)
	// Release gives the capacity back. Nil means that it is given back, or was before: a second call does nothing.
	Release(ctx context.Context, name string) error
	// Lookup adds what the system knows of a job on a host, and the kernel does not tell: its account, queue and end,
	// and its CPUs and memory where a has none. NotFound: no such job runs.
	Lookup(ctx context.Context, a farm.Allotment) (farm.Allotment, error)
}

// Witness is a System that can tell how a job ended, so that a reservation which an administrator ended is told from
// one that was lost with its host.
type Witness interface {
	// Fate is how the job ended that held a reservation, with no outcome while it is ending; NotFound when the system
	// does not know it any more.
	Fate(ctx context.Context, reservation, job string) (Ended, error)
}

// Commenter is a System whose accounts show, beside each job, what an administrator says of it.
type Commenter interface {
	// Comment says that, in the place of what was said before; also of a job that has ended. NotFound when the accounts
	// have no such job.
	Comment(ctx context.Context, job, text string) error
}

// Resumer is a System that remembers jobs for years, and can be read from a time on.
type Resumer interface {
	// Behind is the cursor behind all jobs that ended before a time.
	Behind(time.Time) Cursor
}

// Demand is a number of pending jobs that ask for the same.
type Demand struct {
	Jobs    int
	Image   string     // "": the site's default, or none
	Shape   string     // "": none named
	CPUs    int        // of each job
	Memory  farm.Bytes // of each job; 0: not said
	Account string
	Queue   string
	Oldest  time.Time // when the first of them was submitted; zero: not known
}

// NodeState is what a host does for the batch system.
type NodeState string

// The states of a node.
const (
	NodeIdle   NodeState = "idle"
	NodeBusy   NodeState = "busy"   // some of it, or all
	NodeClosed NodeState = "closed" // takes no new jobs; jobs may still run
	NodeDown   NodeState = "down"   // does not answer, or is broken
	NodeOff    NodeState = "off"    // an elastic node whose VM does not exist
)

// Node is a host as the batch system sees it.
type Node struct {
	Name     string
	State    NodeState
	Closed   bool   // by anybody: it may be down as well
	Ours     bool   // closed by grange
	Reason   string // why it is closed or down, without our mark
	CPUs     int
	Free     int // CPUs not given to jobs; 0 where it takes none
	Memory   farm.Bytes
	Features []string // in order of their names
	Queues   []string // partitions it belongs to, in order; nil where the system does not say
}

// Running is a job on a host.
type Running struct {
	Job         string
	User        string
	Account     string
	Ends        time.Time // its time limit; zero: none
	Reservation string    // "": an ordinary job
}

// Cursor is a place in the order in which jobs end. Its text is the driver's own.
type Cursor string

// Outcome is how a job ended.
type Outcome string

// The outcomes.
const (
	OutcomeDone      Outcome = "done" // status 0
	OutcomeFailed    Outcome = "failed"
	OutcomeCancelled Outcome = "cancelled"
	OutcomeTimeout   Outcome = "timeout"
	OutcomeMemory    Outcome = "out of memory"
	OutcomeNode      Outcome = "node failed"
)

// Ended is one run of a job that is over. A job that was put back into the queue has several, with different starts.
type Ended struct {
	Job string
	// Run names a run of the job where the system may change, after the end, what it has said of one: its start, too.
	// "": it does not, and the start tells runs apart.
	Run         string
	Name        string
	User        string
	Account     string
	Queue       string
	Hosts       []string
	CPUs        int
	Submitted   time.Time
	Started     time.Time // zero: never
	Finished    time.Time
	CPUTime     *time.Duration // user and system; nil: not known
	MaxRSS      farm.Bytes     // 0: not known
	Outcome     Outcome
	Code        int // exit status
	Signal      int // that ended it
	Reservation string
}

// Measured returns a CPU time that a batch system has in fractions of a second; nil for 0. A process that has run has
// used some, so 0 says that nobody has measured it.
func Measured(t time.Duration) *time.Duration {
	if t <= 0 {
		return nil
	}
	return &t
}

// Reservation is what Reserve asks for.
type Reservation struct {
	Name    string // of the VM, unique; letters, digits and dashes
	Account string
	Host    string
	CPUs    int
	Memory  farm.Bytes
	Queue   string        // "": the system's default
	Limit   time.Duration // 0: none
}

// Reserved is a reservation that the system knows.
type Reserved struct {
	Reservation
	Job   string
	Held  bool      // the capacity is ours; false: it waits for room
	Since time.Time // held since; zero while it waits
	Why   string    // why it waits
}

// Mark begins every reason that grange gives a batch system: it tells our closing of a host from an administrator's.
const Mark = "grange: "

// OurReason splits a reason as a batch system keeps it. Slurm appends "[user@time]" to what it shows; drivers cut that
// first.
func OurReason(text string) (reason string, ours bool) { return strings.CutPrefix(text, Mark) }

// Reason is text as a batch system can keep it: marked, of one line, without the characters that its commands split at.
func Reason(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r < ' ' || r == 0x7f, r == '"', r == '\'', r == '\\', r == '|':
			return ' '
		}
		return r
	}, text)
	const most = 200 // bytes; LSF cuts comments at 512, PBS shows 255
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return Mark + strings.TrimSpace(text)
}

// placeholder begins the names of jobs that hold reservations.
const placeholder = "grange-hold-"

// JobName is what the job is called that holds the reservation of this name.
func JobName(reservation string) string { return placeholder + reservation }

// ReservationOf is the reservation that a job of this name holds; "" for an ordinary job.
func ReservationOf(job string) string {
	name, ok := strings.CutPrefix(job, placeholder)
	if !ok {
		return ""
	}
	return name
}

// Validate reports what is wrong with a reservation.
func (b Reservation) Validate() error {
	switch {
	case !ValidName(b.Name):
		return bad("the name of a reservation is 1 to 64 letters, digits and dashes, not %q", b.Name)
	case b.Host == "" || strings.HasPrefix(b.Host, "-"):
		return bad("a reservation is for one host")
	case b.CPUs < 1:
		return bad("a reservation of %d CPUs", b.CPUs)
	case b.Limit < 0:
		return bad("a reservation for %v", b.Limit)
	case strings.HasPrefix(b.Account, "-"), strings.HasPrefix(b.Queue, "-"):
		return bad("account %q, queue %q", b.Account, b.Queue)
	}
	return nil
}

// ValidName reports whether a reservation may have this name.
func ValidName(name string) bool { return plain(name) && len(name) <= 64 }

func bad(format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadReservation, Message: fmt.Sprintf(format, args...),
		Hint: "docs/guide/batch.md says what a reservation is"}
}

func plain(s string) bool {
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-') {
			return false
		}
	}
	return s != "" && s[0] != '-'
}
