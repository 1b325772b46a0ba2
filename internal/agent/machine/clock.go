package machine

import (
	"context"
	"errors"
	"time"

	"github.com/grange-project/grange/internal/guest"
)

// A machine whose CPUs were stopped goes on with the time at which they stopped. Its clock is set when it goes
// on: the guest is asked for its time, and told the difference to the host's.
const (
	clockNear  = 10 * time.Millisecond  // a difference that is left alone
	clockQuick = 20 * time.Millisecond  // an answer that is good enough
	clockTries = 5                      // answers of which the quickest counts, where none is quick
	clockWait  = 500 * time.Millisecond // for one answer
	clockLimit = 5 * time.Second
	holdWait   = 300 * time.Millisecond // for the guest to hold
)

// clock is what a guest says of its clock.
type clock struct {
	takes  bool // the guest takes steps
	holds  bool // the guest takes ControlMessage.Hold
	due    bool // it was not up when its clock was to be set
	number uint64
	answer guest.Clock
	came   time.Time // the answer did
}

func (k *clock) take(answer guest.Clock) {
	if answer.Number == k.number && k.answer.Number != k.number {
		k.answer, k.came = answer, time.Now()
	}
}

// sample is one answer: the host's time minus the guest's, known to half of how long the answer took.
type sample struct{ ahead, took time.Duration }

var errClock = errors.New("the guest does not answer for its clock")

// SetClock sets the guest's clock to the host's time. It returns nil when the clock is right, and for a guest that
// cannot be asked: an older one, or one that is not up yet and is asked when it is.
func (c *control) SetClock(ctx context.Context) error {
	c.setting.Lock()
	defer c.setting.Unlock()
	defer c.release()
	ctx, cancel := context.WithTimeoutCause(ctx, clockLimit, errClock)
	defer cancel()
	c.mu.Lock()
	takes := c.clock.takes
	c.clock.due = !c.heard
	c.mu.Unlock()
	for takes {
		s, err := c.sampleClock(ctx)
		if err != nil {
			return err
		}
		if s.ahead.Abs() <= max(clockNear, s.took/2) {
			return nil
		}
		step := guest.ControlMessage{Clock: &guest.Clock{Step: s.ahead}}
		if _, err := c.askClock(ctx, step); err != nil && ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// hold has the guest keep back from its jobs what hosts send, until release: a machine that goes on has the wrong time
// at first. It returns when the guest does, or does not in time.
func (c *control) hold() {
	c.setting.Lock()
	defer c.setting.Unlock()
	if c.holds() {
		ctx, cancel := context.WithTimeout(context.Background(), holdWait)
		defer cancel()
		c.askClock(ctx, guest.ControlMessage{Hold: true, Clock: &guest.Clock{}})
	}
}

// release has the guest hand on what it kept back. A guest that cannot be told does so by itself, soon after.
func (c *control) release() {
	if c.holds() {
		c.write(guest.ControlMessage{Release: true})
	}
}

func (c *control) holds() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clock.holds
}

// Hold is called before the CPUs of a machine are stopped. SetClock ends it.
func (m *Machine) Hold() {
	if m.Control != nil {
		m.Control.hold()
	}
}

// WentOn sets the clock of a machine that goes on, whoever had it stopped. A guest that is not up yet has the time that
// its kernel reads when it starts. A nil machine has gone.
func (m *Machine) WentOn() {
	if m != nil && m.Control != nil && m.Control.Phase() != "" {
		m.SetClock()
	}
}

// SetClock sets the clock of a machine that goes on after a stop.
func (m *Machine) SetClock() {
	if m.Control == nil || m.host == nil {
		return
	}
	if err := m.Control.SetClock(context.Background()); err != nil && !errors.Is(err, ErrGone) {
		m.host.Log.Warn("the clock of a VM that goes on may be wrong", "vm", m.Name, "error", err)
	}
}

// sampleClock returns a quick answer, or the quickest of several.
func (c *control) sampleClock(ctx context.Context) (best sample, err error) {
	for n := 0; n < clockTries; n++ {
		s, err := c.askClock(ctx, guest.ControlMessage{Clock: &guest.Clock{}})
		switch {
		case ctx.Err() != nil:
			return s, context.Cause(ctx)
		case err != nil:
			n-- // it was lost
			continue
		case best.took == 0 || s.took < best.took:
			best = s
		}
		if best.took <= clockQuick {
			break
		}
	}
	return best, nil
}

// askClock has the guest do what a message says, and tell its time.
func (c *control) askClock(ctx context.Context, m guest.ControlMessage) (sample, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, clockWait, errClock)
	defer cancel()
	c.mu.Lock()
	c.clock.number++
	number := c.clock.number
	c.mu.Unlock()
	m.Clock.Number = number
	asked := time.Now()
	if err := c.write(m); err != nil {
		<-ctx.Done() // it connects again
		return sample{}, err
	}
	for {
		c.mu.Lock()
		answer, came, changed, gone := c.clock.answer, c.clock.came, c.changed, c.gone
		c.mu.Unlock()
		if answer.Number == number {
			took := max(came.Sub(asked), 1)
			return sample{ahead: time.Duration(asked.Add(took/2).UnixNano() - answer.Now), took: took}, nil
		}
		if gone {
			return sample{}, ErrGone
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return sample{}, context.Cause(ctx)
		}
	}
}

// write writes a line to a guest that may not read: it takes no longer than a ping, and leaves the connection as it is.
func (c *control) write(m guest.ControlMessage) error {
	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	if conn == nil {
		return errNotConnected
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	defer conn.SetWriteDeadline(time.Time{})
	conn.SetWriteDeadline(time.Now().Add(pingLimit))
	return guest.WriteLine(conn, m)
}
