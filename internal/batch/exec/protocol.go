package exec

import (
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
)

// Protocol is the version of what is spoken with the program. Fields are only added within a version; so reservations
// keep the name that they had in the first, bookings.
const Protocol = 1

// Request is what the program reads from its standard input, one JSON object. Which fields are there follows from the
// verb.
type Request struct {
	Protocol int `json:"protocol"`
	// demand, nodes, ended, close, open, drain, book, bookings, release, lookup
	Verb        string       `json:"verb"`
	Host        string       `json:"host,omitempty"`    // close, open, drain
	Reason      string       `json:"reason,omitempty"`  // close, drain
	Cursor      string       `json:"cursor,omitempty"`  // ended
	Limit       int          `json:"limit,omitempty"`   // ended
	Reservation *Reservation `json:"booking,omitempty"` // book
	Name        string       `json:"name,omitempty"`    // release
	Job         string       `json:"job,omitempty"`     // lookup
}

// Answer is what it prints, one JSON object: an error, or what the verb asks for.
type Answer struct {
	Error        *Error        `json:"error,omitempty"`
	Demand       []Demand      `json:"demand,omitempty"`
	Nodes        []Node        `json:"nodes,omitempty"`
	Ended        []Ended       `json:"ended,omitempty"`
	Cursor       string        `json:"cursor,omitempty"` // behind the last of Ended
	Running      []Job         `json:"running,omitempty"`
	Reserved     *Reservation  `json:"booked,omitempty"`
	Reservations []Reservation `json:"bookings,omitempty"`
	Lookup       *Job          `json:"lookup,omitempty"`
}

// Error says what the program could not do. Kinds are those of farm.Kind; another one counts as "internal".
type Error struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// Demand is a number of pending jobs.
type Demand struct {
	Jobs    int       `json:"jobs"`
	Image   string    `json:"image,omitempty"`
	Shape   string    `json:"shape,omitempty"`
	CPUs    int       `json:"cpus"`
	Memory  int64     `json:"memory,omitempty"` // bytes
	Account string    `json:"account,omitempty"`
	Queue   string    `json:"queue,omitempty"`
	Oldest  time.Time `json:"oldest,omitzero"` // RFC 3339, as all times
}

// Node is a host. ClosedBy is "grange", or whoever closed it; "" for an open one.
type Node struct {
	Name     string   `json:"name"`
	State    string   `json:"state"` // idle, busy, closed, down, off
	ClosedBy string   `json:"closed_by,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	CPUs     int      `json:"cpus"`
	Free     int      `json:"free"`
	Memory   int64    `json:"memory,omitempty"`
	Features []string `json:"features,omitempty"`
	Queues   []string `json:"queues,omitempty"`
}

// Job is a running job.
type Job struct {
	ID          string    `json:"id"`
	User        string    `json:"user,omitempty"`
	Account     string    `json:"account,omitempty"`
	Queue       string    `json:"queue,omitempty"`
	Ends        time.Time `json:"ends,omitzero"`
	Reservation string    `json:"booking,omitempty"`
}

// Ended is one run of a job that is over.
type Ended struct {
	ID          string    `json:"id"`
	Name        string    `json:"name,omitempty"`
	User        string    `json:"user"`
	Account     string    `json:"account,omitempty"`
	Queue       string    `json:"queue,omitempty"`
	Hosts       []string  `json:"hosts,omitempty"`
	CPUs        int       `json:"cpus"`
	Submitted   time.Time `json:"submitted,omitzero"`
	Started     time.Time `json:"started,omitzero"`
	Finished    time.Time `json:"finished"`
	CPUTime     *float64  `json:"cpu_seconds,omitempty"` // absent: not known
	MaxRSS      int64     `json:"max_rss,omitempty"`
	Outcome     string    `json:"outcome"` // done, failed, cancelled, timeout, out of memory, node failed
	Code        int       `json:"code,omitempty"`
	Signal      int       `json:"signal,omitempty"`
	Reservation string    `json:"booking,omitempty"`
}

// Reservation is capacity for a cloud VM: what is asked for, and with Job what there is.
type Reservation struct {
	Name    string    `json:"name"`
	Account string    `json:"account,omitempty"`
	Host    string    `json:"host"`
	CPUs    int       `json:"cpus"`
	Memory  int64     `json:"memory,omitempty"`
	Queue   string    `json:"queue,omitempty"`
	Seconds int64     `json:"seconds,omitempty"` // 0: no end
	Job     string    `json:"job,omitempty"`
	Held    bool      `json:"held,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Why     string    `json:"why,omitempty"`
}

func wireReservation(b batch.Reservation) *Reservation {
	return &Reservation{Name: b.Name, Account: b.Account, Host: b.Host, CPUs: b.CPUs, Memory: int64(b.Memory),
		Queue: b.Queue, Seconds: int64(b.Limit / time.Second)}
}

func (b Reservation) reserved() batch.Reserved {
	return batch.Reserved{Job: b.Job, Held: b.Held, Since: b.Since, Why: b.Why,
		Reservation: batch.Reservation{Name: b.Name, Account: b.Account, Host: b.Host, CPUs: b.CPUs,
			Memory: farm.Bytes(b.Memory), Queue: b.Queue, Limit: time.Duration(b.Seconds) * time.Second}}
}

func (e Ended) ended() batch.Ended {
	var used *time.Duration
	if e.CPUTime != nil {
		used = new(time.Duration(*e.CPUTime * float64(time.Second)))
	}
	return batch.Ended{Job: e.ID, Name: e.Name, User: e.User, Account: e.Account, Queue: e.Queue, Hosts: e.Hosts,
		CPUs: e.CPUs, Submitted: e.Submitted, Started: e.Started, Finished: e.Finished,
		CPUTime: used, MaxRSS: farm.Bytes(e.MaxRSS),
		Outcome: batch.Outcome(e.Outcome), Code: e.Code, Signal: e.Signal, Reservation: e.Reservation}
}

func (n Node) node() batch.Node {
	return batch.Node{Name: n.Name, State: batch.NodeState(n.State), Closed: n.ClosedBy != "",
		Ours: n.ClosedBy == "grange", Reason: n.Reason, CPUs: n.CPUs, Free: n.Free, Memory: farm.Bytes(n.Memory),
		Features: n.Features, Queues: n.Queues}
}
