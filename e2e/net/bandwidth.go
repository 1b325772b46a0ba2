package main

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
)

// bandwidthTests send more than a guest may receive or send, and measure what arrives.
func bandwidthTests() []test {
	return []test{{"bandwidth", bandwidth}, {"bandwidth restored", bandwidthRestored}}
}

// Bandwidths of the guest under test: different ones, so that none can be taken for the other, and slow enough that
// this program sends twice as much on any machine.
const (
	capIn  farm.Rate = 24e6
	capOut farm.Rate = 16e6
)

const (
	settles   = 2 * time.Second // until a burst has gone: a quiet guest may send a second's worth at once
	measures  = 3 * time.Second
	tolerance = 10 // percent
)

// limited is a guest that is held to the bandwidths above.
func (l *lab) limited() (*guest, error) {
	g, err := l.raw()
	if err == nil {
		g.vm.Bandwidth = farm.Bandwidth{In: capIn, Out: capOut}
		err = l.fence(g)
	}
	return g, err
}

func bandwidth(l *lab, f *figures) error {
	g, err := l.limited()
	if err != nil {
		return err
	}
	return errors.Join(l.holds(g, f), l.end(g))
}

// bandwidthRestored is that with a guest whose limits somebody has removed, and the agent's next look.
func bandwidthRestored(l *lab, f *figures) error {
	g, err := l.limited()
	if err != nil {
		return err
	}
	tap, err := l.run("tc", "qdisc", "show")
	if err != nil {
		return err
	}
	if !strings.Contains(tap, "tbf") {
		return fmt.Errorf("no shaper is there after the fence: %s", tap)
	}
	for line := range strings.Lines(tap) {
		if words := strings.Fields(line); len(words) > 4 && words[1] == "tbf" {
			if _, err := l.run("tc", "qdisc", "del", "dev", words[4], "root"); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(l.must("nft flush ruleset"), l.restore(g)); err != nil {
		return err
	}
	return errors.Join(l.holds(g, f), l.end(g))
}

// holds measures both directions.
func (l *lab) holds(g *guest, f *figures) error {
	out, err := l.rate(g, g, l.uplink, 2*capOut)
	if err != nil {
		return err
	}
	in, err := l.rate(g, l.uplink, g, 2*capIn)
	if err != nil {
		return err
	}
	fmt.Printf("     it receives %.2fM of %v, and sends %.2fM of %v bit/s\n", in/1e6, capIn, out/1e6, capOut)
	off := func(got float64, want farm.Rate) float64 { return math.Abs(got/float64(want)-1) * 100 }
	worst := max(off(in, capIn), off(out, capOut))
	f.Off = max(f.Off, math.Round(worst*10)/10)
	if worst > tolerance {
		return fmt.Errorf("it receives %.0f of %d bit/s, and sends %.0f of %d", in, capIn, out, capOut)
	}
	return nil
}

// looks restores a guest again and again, as an agent does: that must not give it anything.
func (l *lab) looks(held *guest, stop <-chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		case <-time.After(500 * time.Millisecond):
		}
		if err := l.restore(held); err != nil {
			return err
		}
	}
}

// rate has one guest send so many bits a second to another one, and returns how many arrive once that is steady. One of
// the two is held to its bandwidth.
func (l *lab) rate(held, from, to *guest, offered farm.Rate) (float64, error) {
	frame := eth(to.mac, from.mac, typeIP4, ip4(from.ip4, to.ip4, protoUDP, 0,
		udp(40000, 9, strings.Repeat("x", 1400))))
	stop := make(chan struct{})
	sent, looked := make(chan error, 1), make(chan error, 1)
	go func() { sent <- pace(from, frame, float64(offered)/8, stop) }()
	go func() { looked <- l.looks(held, stop) }()
	drain(to, len(frame), time.Now().Add(settles))
	began := time.Now()
	n := drain(to, len(frame), began.Add(measures))
	took := time.Since(began).Seconds()
	close(stop)
	err := errors.Join(<-sent, <-looked)
	to.received() // the rest
	return float64(n*len(frame)*8) / took, err
}

// pace sends a frame again and again, so many bytes a second.
func pace(from *guest, frame []byte, perSecond float64, stop <-chan struct{}) error {
	began, written := time.Now(), 0.0
	for tick := time.NewTicker(2 * time.Millisecond); ; {
		select {
		case <-stop:
			tick.Stop()
			return nil
		case <-tick.C:
		}
		for ; written < perSecond*time.Since(began).Seconds(); written += float64(len(frame)) {
			if _, err := unix.Write(from.fd, frame); err != nil && err != unix.EAGAIN {
				return fmt.Errorf("send a frame: %w", err)
			}
		}
	}
}

// drain counts the frames of this length that a guest gets until then.
func drain(g *guest, length int, until time.Time) (n int) {
	frame := make([]byte, 4096)
	for {
		left := time.Until(until)
		if left <= 0 {
			return n
		}
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(g.fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if ready == 0 || err != nil {
			continue
		}
		if got, err := unix.Read(g.fd, frame); err == nil && got == length {
			n++
		}
	}
}
