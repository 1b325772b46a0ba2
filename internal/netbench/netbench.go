// Package netbench measures the network between this machine and one that answers: throughput both ways, the time of an
// answer, loss, and what the CPUs of both do meanwhile.
package netbench

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/cputicks"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/netbench/answerer"
	"github.com/grange-project/grange/internal/sleep"
)

// CodeCheck is the code of errors of a network check; docs/errors.md explains it.
const CodeCheck farm.Code = "network-check"

// Transfer is bytes one way, by one TCP connection.
type Transfer struct {
	Bytes    int64   `json:"bytes"`
	Seconds  float64 `json:"seconds"`
	Rate     float64 `json:"bits_per_second"`
	CPUHere  float64 `json:"cpus_here"` // that worked, for whatever it was
	CPUThere float64 `json:"cpus_there"`
}

// Flood is datagrams that the other side returns: the next one goes when the last one is back, or after 10 ms.
type Flood struct {
	Sent     int     `json:"sent"`
	Arrived  int     `json:"arrived"`
	Returned int     `json:"returned"`
	Median   float64 `json:"median_milliseconds"` // of the way there and back
	P99      float64 `json:"p99_milliseconds"`
	CPUHere  float64 `json:"cpus_here"`
	CPUThere float64 `json:"cpus_there"`
}

// Loss is the part of the datagrams that did not come back.
func (f Flood) Loss() float64 { return float64(f.Sent-f.Returned) / float64(max(f.Sent, 1)) }

// Result is one check.
type Result struct {
	There Transfer `json:"there"`
	Back  Transfer `json:"back"`
	Flood Flood    `json:"flood"`
}

// Options are those of a check.
type Options struct {
	Peer    string // address and port
	Key     string
	Time    time.Duration // of a transfer
	Packets int
	Tell    func(string) // of the progress
}

// checker is a check under way.
type checker struct {
	Options
	conn net.Conn // for control
	in   *bufio.Reader
}

// wait is how long the other side may need for an answer.
const wait = 10 * time.Second

// Run measures.
func Run(ctx context.Context, o Options) (r Result, err error) {
	c := checker{Options: o}
	if c.conn, err = c.open(ctx, answerer.Control); err != nil {
		return r, c.failed(ctx, err)
	}
	defer c.conn.Close()
	c.Peer = c.conn.RemoteAddr().String() // a name may have several addresses
	defer context.AfterFunc(ctx, func() { c.conn.Close() })()
	c.in = bufio.NewReader(c.conn)
	if word, err := c.line(); err != nil || word != answerer.Ready {
		return r, c.refused(ctx, word, err)
	}
	o.Tell("bytes there")
	if r.There, err = c.transfer(ctx, c.there); err != nil {
		return r, c.failed(ctx, err)
	}
	o.Tell("bytes back")
	if r.Back, err = c.transfer(ctx, c.back); err != nil {
		return r, c.failed(ctx, err)
	}
	o.Tell("datagrams")
	if r.Flood, err = c.flood(ctx); err != nil {
		return r, c.failed(ctx, err)
	}
	return r, nil
}

func (c *checker) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &farm.Error{Kind: farm.Unavailable, Code: CodeCheck, Message: "the check of the network failed", Err: err,
		Hint: "run `grange network answer` on the other side, and let filters pass its port for TCP and UDP"}
}

// refused is why the other side does not begin.
func (c *checker) refused(ctx context.Context, word string, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case word == answerer.Busy:
		return &farm.Error{Kind: farm.Conflict, Code: CodeCheck, Message: "the other side answers another check",
			Hint: "start `grange network answer` again there: each answers one check"}
	case errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET):
		return &farm.Error{Kind: farm.Denied, Code: CodeCheck, Message: "the other side does not take the key",
			Hint: "--key is what `grange network answer` printed there", Err: err}
	}
	return c.failed(ctx, err)
}

// open connects for one purpose.
func (c *checker) open(ctx context.Context, purpose string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: wait}).DialContext(ctx, "tcp", c.Peer)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(c.Time + wait)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if _, err := fmt.Fprintln(conn, answerer.Greeting, c.Key, purpose); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func (c *checker) line() (string, error) {
	text, err := c.in.ReadString('\n')
	return strings.TrimSpace(text), err
}

func (c *checker) ask(question string) (int64, error) {
	if err := c.conn.SetDeadline(time.Now().Add(wait)); err != nil {
		return 0, err
	}
	if _, err := fmt.Fprintln(c.conn, question); err != nil {
		return 0, err
	}
	text, err := c.line()
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(text, 10, 64)
}

// working returns how many CPUs worked on both sides while do ran.
func (c *checker) working(do func() error) (here, there float64, err error) {
	thereWas, err := c.ask(answerer.AskCPU)
	if err != nil {
		return 0, 0, err
	}
	hereWas, began := cputicks.Busy(), time.Now()
	if err := do(); err != nil {
		return 0, 0, err
	}
	hereIs, took := cputicks.Busy(), time.Since(began).Seconds()*cputicks.ASecond
	thereIs, err := c.ask(answerer.AskCPU)
	return float64(hereIs-hereWas) / took, float64(thereIs-thereWas) / took, err
}

func (c *checker) transfer(ctx context.Context, way func(context.Context) (int64, error)) (t Transfer, err error) {
	t.CPUHere, t.CPUThere, err = c.working(func() (err error) {
		began := time.Now()
		t.Bytes, err = way(ctx)
		t.Seconds = time.Since(began).Seconds()
		return err
	})
	t.Rate = float64(t.Bytes) * 8 / t.Seconds
	return t, err
}

// there sends bytes and returns how many of them the other side has got.
func (c *checker) there(ctx context.Context) (int64, error) {
	conn, err := c.open(ctx, answerer.Receive)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	zeros := make([]byte, answerer.Block)
	for began := time.Now(); time.Since(began) < c.Time && ctx.Err() == nil; {
		if _, err := conn.Write(zeros); err != nil {
			return 0, err
		}
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return 0, err
	}
	text, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(text), 10, 64)
}

// back receives bytes.
func (c *checker) back(ctx context.Context) (int64, error) {
	conn, err := c.open(ctx, fmt.Sprint(answerer.Send, " ", c.Time.Milliseconds()))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	return io.Copy(io.Discard, conn)
}

func (c *checker) flood(ctx context.Context) (f Flood, err error) {
	conn, err := net.Dial("udp", c.Peer)
	if err != nil {
		return f, err
	}
	defer conn.Close()
	if _, err := c.ask(answerer.AskCount); err != nil { // what came before is not ours
		return f, err
	}
	p := pinger{conn: conn, key: c.Key, sent: make([]time.Time, 0, c.Packets), took: make([]time.Duration, c.Packets)}
	f.CPUHere, f.CPUThere, err = c.working(func() error { return p.run(ctx) })
	if err != nil {
		return f, err
	}
	arrived, err := c.ask(answerer.AskCount)
	f.Sent, f.Arrived = len(p.sent), int(arrived)
	took := slices.DeleteFunc(p.took, func(d time.Duration) bool { return d == 0 })
	slices.Sort(took)
	if f.Returned = len(took); f.Returned > 0 {
		f.Median = took[len(took)/2].Seconds() * 1000
		f.P99 = took[len(took)*99/100].Seconds() * 1000
	}
	return f, err
}

// pinger sends numbered datagrams and notes when they come back.
type pinger struct {
	conn net.Conn
	key  string
	sent []time.Time
	took []time.Duration // by number; 0: not back
}

// pace is how long the next datagram waits for the last one, and late how long the last of all may take.
const (
	pace = 10 * time.Millisecond
	late = time.Second
)

func (p *pinger) run(ctx context.Context) error {
	var b [answerer.Datagram]byte
	copy(b[:], p.key)
	for n := range cap(p.sent) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		binary.BigEndian.PutUint64(b[answerer.KeySize:], uint64(n))
		p.sent = append(p.sent, time.Now())
		if err := p.write(ctx, b[:]); err != nil {
			return err
		}
		if err := p.await(n, pace); err != nil {
			return err
		}
	}
	for n := range p.sent {
		if p.took[n] == 0 {
			return p.await(-1, late)
		}
	}
	return nil
}

// write waits where the card's queue is full.
func (p *pinger) write(ctx context.Context, b []byte) error {
	for {
		_, err := p.conn.Write(b)
		if !errors.Is(err, syscall.ENOBUFS) {
			return err
		}
		if err := sleep.For(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

// await reads what comes back until number n has, or for a time.
func (p *pinger) await(n int, most time.Duration) error {
	if err := p.conn.SetReadDeadline(time.Now().Add(most)); err != nil {
		return err
	}
	var b [answerer.Datagram]byte
	for {
		size, err := p.conn.Read(b[:])
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return nil
		}
		if err != nil {
			return err
		}
		got := binary.BigEndian.Uint64(b[answerer.KeySize:])
		if size != answerer.Datagram || got >= uint64(len(p.sent)) || p.took[got] != 0 {
			continue // not ours, or a second time
		}
		p.took[got] = max(time.Since(p.sent[got]), 1)
		if int(got) == n {
			return nil
		}
	}
}
