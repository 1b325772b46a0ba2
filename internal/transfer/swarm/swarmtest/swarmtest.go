// Package swarmtest simulates many hosts that fetch one file at once, by the decisions of package swarm, on a network
// whose links are shared evenly. Its time is virtual.
package swarmtest

import (
	"bytes"
	"container/heap"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/grange-project/grange/internal/transfer/swarm"
)

// Run is what is simulated.
type Run struct {
	Hosts      int
	Pieces     int
	PieceBytes float64
	Link       float64 // bytes a second of each host, each way
	SourceLink float64
	Known      int           // peers that a host is told of
	Spread     time.Duration // within which the hosts begin
	Broken     int           // hosts that take requests and never answer
	Liars      int           // hosts that send other bytes than they should
	Seed       uint64
}

// Result is what came of it.
type Result struct {
	Makespan     time.Duration // until all hosts have all, from the first one's begin
	Ratio        float64       // of that to the time of one copy at the speed of the source's link
	SourceCopies float64       // that the source sent
	Finished     int
}

const (
	hostSlots   = 4
	sourceSlots = 8
	poll        = time.Second
	rtt         = time.Millisecond
	giveUp      = 10 * time.Second // on who does not answer
	longest     = 24 * time.Hour
)

type sim struct {
	Run
	now    time.Time
	begin  time.Time
	random *rand.Rand
	events events
	seq    int
	source *host
	hosts  []*host
	hand   *swarm.Handout
	sent   float64
	done   int
}

type host struct {
	name        string
	swarm       *swarm.Swarm
	has         swarm.Bits
	known       []*host
	up, down    float64
	ups, downs  []*flow
	wakeAt      time.Time
	hangs, lies bool
}

type flow struct {
	from, to *host
	piece    int
	left     float64
	rate     float64
	at       time.Time
	version  int
	ended    bool
}

// Do simulates a run.
func (r Run) Do() Result {
	s := &sim{Run: r, begin: time.Unix(0, 0), random: rand.New(rand.NewPCG(r.Seed, 1)),
		hand: swarm.NewHandout(r.Pieces), source: &host{name: "source", up: r.SourceLink, down: r.SourceLink}}
	s.now = s.begin
	for i := range r.Hosts {
		h := &host{name: strconv.Itoa(i), has: swarm.NewBits(r.Pieces), up: r.Link, down: r.Link,
			hangs: i < r.Broken, lies: i >= r.Broken && i < r.Broken+r.Liars}
		s.hosts = append(s.hosts, h)
	}
	for _, h := range s.hosts {
		h.swarm = swarm.New(make([]bool, r.Pieces), s.now, rand.New(rand.NewPCG(r.Seed, s.random.Uint64())))
		if h.hangs || h.lies {
			for i := range r.Pieces {
				h.has.Set(i)
			}
			continue
		}
		start := s.now.Add(time.Duration(s.random.Int64N(int64(r.Spread + 1))))
		s.at(start, func() { s.meet(h); s.polls(h) })
	}
	for len(s.events) > 0 && s.done < s.wanted() && s.now.Sub(s.begin) < longest {
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.do()
	}
	size := float64(r.Pieces) * r.PieceBytes
	one := size / r.SourceLink
	span := s.now.Sub(s.begin)
	return Result{span, span.Seconds() / one, s.sent / size, s.done}
}

func (s *sim) wanted() int { return s.Hosts - s.Broken - s.Liars }

// meet is the tracker: it names some of the hosts.
func (s *sim) meet(h *host) {
	for _, n := range s.random.Perm(len(s.hosts)) {
		if other := s.hosts[n]; other != h && len(h.known) < s.Known {
			h.known = append(h.known, other)
			h.swarm.Peer(other.name, nil)
		}
	}
}

func (s *sim) peer(name string) *host {
	n, _ := strconv.Atoi(name)
	return s.hosts[n]
}

func (s *sim) polls(h *host) {
	if h.swarm.Left() == 0 {
		return
	}
	for _, name := range h.swarm.Peers(s.now) {
		h.swarm.Peer(name, bytes.Clone(s.peer(name).has))
	}
	s.wake(h)
	s.at(s.now.Add(poll/2+time.Duration(s.random.Int64N(int64(poll)))), func() { s.polls(h) })
}

// wake lets a host ask for all that it may.
func (s *sim) wake(h *host) {
	for {
		ask, ok := h.swarm.Next(s.now)
		if !ok {
			break
		}
		if ask.Peer == swarm.Source {
			s.askSource(h, ask)
		} else {
			s.askPeer(h, s.peer(ask.Peer), ask.Pieces[0])
		}
	}
	if wake := h.swarm.Wake(s.now); h.swarm.Left() > 0 && (!h.wakeAt.After(s.now) || wake.Before(h.wakeAt)) {
		h.wakeAt = wake
		s.at(wake, func() {
			if h.wakeAt == wake {
				s.wake(h)
			}
		})
	}
}

func (s *sim) askSource(h *host, ask swarm.Ask) {
	piece, ok := -1, false
	if len(s.source.ups) < sourceSlots {
		piece, ok = s.hand.Pick(h.name, ask.Pieces, ask.Alone, s.now)
	}
	if !ok {
		s.over(h, swarm.Source, -1, swarm.Busy, rtt)
		return
	}
	h.swarm.Coming(piece, s.now)
	s.start(s.source, h, piece)
}

func (s *sim) askPeer(h, from *host, piece int) {
	switch {
	case from.hangs:
		s.over(h, from.name, piece, swarm.Away, giveUp)
	case len(from.ups) >= hostSlots:
		s.over(h, from.name, piece, swarm.Busy, rtt)
	case !from.has.Has(piece):
		s.over(h, from.name, piece, swarm.Lacks, rtt)
	default:
		s.start(from, h, piece)
	}
}

func (s *sim) over(h *host, peer string, piece int, o swarm.Outcome, after time.Duration) {
	s.at(s.now.Add(after), func() {
		h.swarm.Done(peer, piece, o, s.now)
		s.wake(h)
	})
}

func (s *sim) start(from, to *host, piece int) {
	f := &flow{from: from, to: to, piece: piece, left: s.PieceBytes, at: s.now.Add(rtt)}
	from.ups, to.downs = append(from.ups, f), append(to.downs, f)
	s.share(from, to)
}

// share divides links anew among the flows of both ends.
func (s *sim) share(from, to *host) {
	for _, flows := range [][]*flow{from.ups, to.downs} {
		for _, f := range flows {
			if rate := min(f.from.up/float64(len(f.from.ups)), f.to.down/float64(len(f.to.downs))); rate != f.rate {
				s.pace(f, rate)
			}
		}
	}
}

func (s *sim) pace(f *flow, rate float64) {
	if d := s.now.Sub(f.at).Seconds(); d > 0 {
		f.left -= d * f.rate
		f.at = s.now
	}
	f.rate = rate
	f.version++
	version := f.version
	end := f.at.Add(time.Duration(max(f.left, 0) / rate * float64(time.Second)))
	s.at(end, func() {
		if !f.ended && f.version == version {
			s.end(f)
		}
	})
}

func (s *sim) end(f *flow) {
	f.ended = true
	f.from.ups, f.to.downs = without(f.from.ups, f), without(f.to.downs, f)
	s.share(f.from, f.to)
	h, name, outcome := f.to, f.from.name, swarm.Given
	if f.from == s.source {
		s.sent += s.PieceBytes
		s.hand.Over(f.piece, true, s.now)
		name = swarm.Source
	}
	if f.from.lies {
		outcome = swarm.Lied
	} else {
		h.has.Set(f.piece)
	}
	had := h.swarm.Left() == 0
	h.swarm.Done(name, f.piece, outcome, s.now)
	if name != swarm.Source && !f.from.lies {
		h.swarm.Peer(name, bytes.Clone(f.from.has)) // it comes with the answer
	}
	if !had && h.swarm.Left() == 0 {
		s.done++
	}
	s.wake(h)
}

func without(flows []*flow, f *flow) []*flow {
	for i, g := range flows {
		if g == f {
			return append(flows[:i], flows[i+1:]...)
		}
	}
	return flows
}

type event struct {
	at  time.Time
	seq int // of two at one time, the first one made goes first
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	n := len(*e) - 1
	x := (*e)[n]
	*e = (*e)[:n]
	return x
}

func (s *sim) at(t time.Time, do func()) {
	s.seq++
	heap.Push(&s.events, event{t, s.seq, do})
}
