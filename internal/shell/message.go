// Package shell keeps a terminal for a command that outlives the terminal it was started from: a process of its user's
// own has the command in a pseudo-terminal, and the user attaches to it and leaves it over a unix socket. It knows no
// VMs: the command is whatever runs in one.
package shell

import (
	"encoding/json"
	"net"
	"sync"
	"time"
)

// Session is what is shown of a kept command.
type Session struct {
	ID       string    `json:"id"`
	Pool     string    `json:"pool,omitempty"`
	Command  string    `json:"command"`
	Started  time.Time `json:"started"`
	Process  int       `json:"process"` // that keeps it
	Detach   bool      `json:"detach"`  // it stays when nobody is attached
	Attached bool      `json:"attached"`
	// Ended is when it ended while nobody was attached; nil: it runs.
	Ended  *time.Time `json:"ended,omitempty"`
	Status int        `json:"status,omitempty"` // exit status, once it has ended
}

// Size is that of a terminal, in characters.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// message is one JSON text on the socket. The first one of a client has Attach, End or neither, which asks for the
// session alone; it is answered by the session.
type message struct {
	Attach *Size `json:"attach,omitempty"` // from a client: its terminal is the session's from now on
	End    bool  `json:"end,omitempty"`    // from a client: the command is to end
	Size   *Size `json:"size,omitempty"`   // from the attached client
	Left   bool  `json:"left,omitempty"`   // from the attached client: it detaches

	Session   *Session `json:"session,omitempty"`
	Data      []byte   `json:"data,omitempty"`      // both ways
	Elsewhere bool     `json:"elsewhere,omitempty"` // to a client: another one has attached
	Ended     *int     `json:"ended,omitempty"`     // to a client: the command's exit status
}

// writeLimit is how long a client may take nothing: then it counts as gone, so that nobody else waits for it.
const writeLimit = 30 * time.Second

// channel is one end of a connection.
type channel struct {
	conn    *net.UnixConn
	decoder *json.Decoder

	writing sync.Mutex
	encoder *json.Encoder
}

func newChannel(conn *net.UnixConn) *channel {
	return &channel{conn: conn, decoder: json.NewDecoder(conn), encoder: json.NewEncoder(conn)}
}

func (c *channel) send(m message) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.hurry()
	return c.encoder.Encode(m)
}

// sendPatiently waits for a client that takes nothing, as a terminal that was stopped has its command wait.
func (c *channel) sendPatiently(m message) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.conn.SetWriteDeadline(time.Time{})
	return c.encoder.Encode(m)
}

// hurry bounds what is on its way.
func (c *channel) hurry() { c.conn.SetWriteDeadline(time.Now().Add(writeLimit)) }

// part sends a last message and closes, soon, also where another one is stuck on its way.
func (c *channel) part(m message) {
	c.conn.SetWriteDeadline(time.Now().Add(time.Second))
	c.writing.Lock()
	defer c.writing.Unlock()
	c.encoder.Encode(m)
	c.conn.Close()
}

func (c *channel) receive() (m message, err error) {
	err = c.decoder.Decode(&m)
	return m, err
}
