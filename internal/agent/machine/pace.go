package machine

import (
	"bytes"
	"context"
	"io"
	"time"
)

// pace bounds how often something is done, or how much is taken: so much at once, and then so much a second. The zero
// value lets nothing through. It is not safe for use by several goroutines.
type pace struct {
	burst, rate float64 // rate is a second's

	left float64
	at   time.Time // left was so much; zero: never used, and full
}

// Wait is how long it takes until there is something left.
func (p *pace) Wait(now time.Time) time.Duration {
	if p.at.IsZero() {
		p.left = p.burst
	} else {
		p.left = min(p.burst, p.left+p.rate*now.Sub(p.at).Seconds())
	}
	p.at = now
	if p.left > 0 {
		return 0
	}
	return time.Duration((-p.left + minLeft) / p.rate * float64(time.Second))
}

// minLeft keeps a wait that rounds down from being waited for again.
const minLeft = 1e-3

// Take spends what may be more than is left: the next wait is for all of it.
func (p *pace) Take(now time.Time, cost float64) {
	p.Wait(now)
	p.left -= cost
}

// slowReader reads no faster than its pace: what a guest sends beyond that stays in QEMU, and then in the guest, which
// waits. A line costs as much as some hundred bytes do, for it is work however short it is.
type slowReader struct {
	io.Reader
	ctx  context.Context
	pace *pace
	late func() // is called when something has to wait
}

// Bounds of the bytes that are read of one guest. The burst holds the list of thousands of tasks that a grange-guest
// sends after a restart of the agent.
const (
	guestBurst = 1 << 20
	guestRate  = 64 << 10 // bytes a second
	lineCost   = 128
	guestChunk = 16 << 10
)

func (r slowReader) Read(b []byte) (int, error) {
	if wait := r.pace.Wait(time.Now()); wait > 0 {
		r.late()
		select {
		case <-time.After(wait):
		case <-r.ctx.Done():
			return 0, context.Cause(r.ctx)
		}
	}
	n, err := r.Reader.Read(b[:min(len(b), guestChunk)])
	r.pace.Take(time.Now(), float64(n+lineCost*bytes.Count(b[:n], []byte{'\n'})))
	return n, err
}

// NewPace bounds what a guest has done by its words: so often at once, and then by paceOfGuest.
func NewPace(burst float64) pace { return pace{burst: burst, rate: paceOfGuest} }

// paceOfGuest is how often a second a guest is given its job, or heard, beyond what it gets at once.
const paceOfGuest = 0.1
