package machine

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"
)

// TestPace spends at several times: a burst, then so much a second, and no more than a burst after a rest.
func TestPace(t *testing.T) {
	p, now := pace{burst: 3, rate: 0.5}, time.Now()
	for i := range 3 {
		if w := p.Wait(now); w != 0 {
			t.Fatalf("waits %v for the %d. of a burst", w, i+1)
		}
		p.Take(now, 1)
	}
	if w := p.Wait(now); w <= 0 || w > 10*time.Millisecond {
		t.Errorf("an empty pace waits %v for anything at all", w)
	}
	p.Take(now, 1)
	if w := p.Wait(now); w < 2*time.Second || w > 2100*time.Millisecond {
		t.Errorf("waits %v for what was taken in advance, not 2 s", w)
	}
	if w := p.Wait(now.Add(p.Wait(now))); w != 0 {
		t.Errorf("has waited, and waits %v again", w)
	}
	p.Wait(now.Add(time.Hour))
	if p.left != 3 {
		t.Errorf("%v are left after a rest, not a burst", p.left)
	}
}

// TestSlowReader reads lines of every length no faster than the pace, and ends with its context while it waits.
func TestSlowReader(t *testing.T) {
	for name, text := range map[string]string{"empty lines": "\n", "short lines": "{\"phase\":\"ready\"}\n",
		"no lines": strings.Repeat("x", 4096)} {
		ctx, cancel := context.WithCancel(t.Context())
		late := false
		p := pace{burst: 64 << 10, rate: 1} // what comes after the burst would take hours
		r := slowReader{io.LimitReader(endless(text), 64<<20), ctx, &p, func() { late = true; cancel() }}
		n, err := io.Copy(io.Discard, r)
		if most := int64(64<<10 + guestChunk); err == nil || !late || n > most {
			t.Errorf("%s: %d bytes were read, at most %d may be; %v", name, n, most, err)
		}
		if lines := n / int64(len(text)); text[len(text)-1] == '\n' && lines > (64<<10)/lineCost+guestChunk {
			t.Errorf("%s: %d lines were read", name, lines)
		}
		cancel()
	}
}

// endless repeats a text.
type endless string

func (e endless) Read(b []byte) (n int, err error) {
	for n < len(b) {
		n += copy(b[n:], e)
	}
	return n, nil
}
