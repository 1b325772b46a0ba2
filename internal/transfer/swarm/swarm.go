// Package swarm decides which piece of a file a host asks for next, and whom; whom it leaves alone for how long; and
// what the source gives to whom. It is pure: whoever calls it brings the time, and does what it says.
package swarm

import (
	"bytes"
	"math/bits"
	"math/rand/v2"
	"time"
)

// Bounds of what a host asks for at a time.
const (
	parallel   = 6  // requests of one transfer
	fromPeer   = 1  // requests to one peer
	candidates = 24 // pieces that the source may choose from
	mostPeers  = 64

	// patience is how long nothing may come before the source is asked for what peers have too.
	patience = 4 * time.Second
	// promises that a peer may break in a row: what it has may go.
	promises = 3
	// again is how long a piece may be on its way before another peer is asked for it as well.
	again = 3 * time.Second
)

// Source stands for the source where a peer is named.
const Source = ""

// Ask is a request: of a peer for one piece, or of the source for one of several, as it likes.
type Ask struct {
	Peer   string
	Pieces []int
	// Alone says that there is no peer to be asked: the source gives what it gave others, too.
	Alone bool
}

// Outcome is what became of a request.
type Outcome int

// The outcomes, from good to bad.
const (
	Given Outcome = iota // the piece came, whole
	Busy                 // they give to others now
	Lacks                // they do not have it
	Away                 // no answer, or one that broke off
	Slow                 // less came than should have
	Lied                 // what came is not what it should be
)

// pauses are for how long somebody is left alone, at first and at most.
var pauses = map[Outcome][2]time.Duration{
	Busy: {150 * time.Millisecond, time.Second}, Lacks: {500 * time.Millisecond, 10 * time.Second},
	Away: {5 * time.Second, 2 * time.Minute}, Slow: {20 * time.Second, 5 * time.Minute},
	Lied: {30 * time.Minute, 30 * time.Minute},
}

// sourcePause is the most for which the source is left: there is nobody in its place.
const sourcePause = 10 * time.Second

// Swarm is what one transfer knows of its pieces and of those who have them. It is not for several goroutines.
type Swarm struct {
	random *rand.Rand
	pieces []piece
	left   int // pieces that are not here
	flying int
	peers  map[string]*party
	order  []string // of peers
	source party
	came   time.Time // when a piece came last, or the transfer began
}

type piece struct {
	here  bool
	asked int       // requests under way
	since time.Time // the first of them
	rare  int       // peers that have it and are not left alone
}

// party is a peer, or the source.
type party struct {
	has    Bits
	flying int
	faults int       // in a row
	why    Outcome   // of the last fault
	until  time.Time // it is left alone
	out    bool      // what it has does not count, as it is left alone for a fault
}

// New returns a transfer's swarm. here are the pieces that it has.
func New(here []bool, now time.Time, random *rand.Rand) *Swarm {
	s := &Swarm{random: random, pieces: make([]piece, len(here)), peers: map[string]*party{}, came: now}
	for i, h := range here {
		if s.pieces[i].here = h; !h {
			s.left++
		}
	}
	return s
}

// Left returns how many pieces are missing.
func (s *Swarm) Left() int { return s.left }

// Peer enters what a peer holds; nil: it is not known yet. There are peers enough at some point.
func (s *Swarm) Peer(name string, has Bits) {
	p := s.peers[name]
	if p == nil {
		if len(s.peers) >= mostPeers {
			return
		}
		p = &party{}
		s.peers[name] = p
		s.order = append(s.order, name)
	}
	if has == nil {
		return
	}
	if !p.out && !bytes.Equal(p.has, has) {
		s.count(p.has, -1)
		s.count(has, 1)
	}
	p.has = has
}

func (s *Swarm) count(has Bits, by int) {
	for n, b := range has {
		for ; b != 0; b &= b - 1 {
			if i := 8*n + bits.TrailingZeros8(b); i < len(s.pieces) {
				s.pieces[i].rare += by
			}
		}
	}
}

// Peers returns those who are not left alone, whose holdings are worth looking at.
func (s *Swarm) Peers(now time.Time) []string {
	var all []string
	for _, name := range s.order {
		if p := s.peers[name]; !p.out || p.ready(now) {
			all = append(all, name)
		}
	}
	return all
}

func (p *party) ready(now time.Time) bool { return !now.Before(p.until) }

// Next returns what to ask for now, if anything. Whoever asks calls Done when it is over.
func (s *Swarm) Next(now time.Time) (Ask, bool) {
	if s.flying >= parallel || s.left == 0 {
		return Ask{}, false
	}
	s.back(now)
	ask, ok := s.fromPeers(now)
	if !ok {
		ask, ok = s.fromSource(now)
	}
	if !ok {
		ask, ok = s.twice(now)
	}
	if !ok {
		return Ask{}, false
	}
	s.flying++
	if ask.Peer == Source {
		s.source.flying++
		return ask, true // which piece comes is the source's choice: see Coming
	}
	s.peers[ask.Peer].flying++
	s.ask(ask.Pieces[0], now)
	return ask, true
}

// back counts those again who were left alone for long enough.
func (s *Swarm) back(now time.Time) {
	for _, p := range s.peers {
		if p.out && p.ready(now) {
			p.out = false
			s.count(p.has, 1)
		}
	}
}

func (s *Swarm) ask(i int, now time.Time) {
	if p := &s.pieces[i]; p.asked == 0 {
		p.since = now
	}
	s.pieces[i].asked++
}

// fromPeers asks any peer for the rarest piece that it has: what few have is soon had by more.
func (s *Swarm) fromPeers(now time.Time) (Ask, bool) {
	for _, n := range s.random.Perm(len(s.order)) {
		name := s.order[n]
		p := s.peers[name]
		if p.flying >= fromPeer || !p.ready(now) {
			continue
		}
		if i, ok := s.rarest(p.has); ok {
			return Ask{Peer: name, Pieces: []int{i}}, true
		}
	}
	return Ask{}, false
}

func (s *Swarm) rarest(has Bits) (int, bool) {
	best, start := -1, s.random.IntN(len(s.pieces))
	for k := range s.pieces {
		i := start + k
		if i >= len(s.pieces) {
			i -= len(s.pieces)
		}
		p := &s.pieces[i]
		if p.here || p.asked > 0 || !has.Has(i) {
			continue
		}
		if best < 0 || p.rare < s.pieces[best].rare {
			best = i
		}
	}
	return best, best >= 0
}

// fromSource asks the source for one of the pieces that no peer has; for any, when nothing has come for a while.
func (s *Swarm) fromSource(now time.Time) (Ask, bool) {
	if s.source.flying > 0 || !s.source.ready(now) {
		return Ask{}, false
	}
	waited := now.Sub(s.came) >= patience
	ask, start := Ask{Peer: Source, Alone: s.alone()}, s.random.IntN(len(s.pieces))
	for k := range s.pieces {
		i := (start + k) % len(s.pieces)
		if p := &s.pieces[i]; !p.here && p.asked == 0 && (p.rare == 0 || waited) {
			if ask.Pieces = append(ask.Pieces, i); len(ask.Pieces) == candidates {
				break
			}
		}
	}
	return ask, len(ask.Pieces) > 0
}

// alone reports whether there is nobody but the source.
func (s *Swarm) alone() bool {
	for _, p := range s.peers {
		if !p.out {
			return false
		}
	}
	return true
}

// twice asks for a piece again that has been on its way for long, of somebody else who has it.
func (s *Swarm) twice(now time.Time) (Ask, bool) {
	for i := range s.pieces {
		p := &s.pieces[i]
		if p.here || p.asked != 1 || now.Sub(p.since) < again {
			continue
		}
		for _, name := range s.order {
			if q := s.peers[name]; q.flying == 0 && q.ready(now) && q.has.Has(i) {
				return Ask{Peer: name, Pieces: []int{i}}, true
			}
		}
		if s.source.flying == 0 && s.source.ready(now) && now.Sub(p.since) >= 2*again {
			return Ask{Peer: Source, Pieces: []int{i}}, true
		}
	}
	return Ask{}, false
}

// Coming enters which of the pieces that the source was asked for it gives.
func (s *Swarm) Coming(i int, now time.Time) { s.ask(i, now) }

// Done enters what became of a request. piece is the one that was to come, -1 if none was.
func (s *Swarm) Done(peer string, piece int, o Outcome, now time.Time) {
	s.flying--
	if piece >= 0 {
		p := &s.pieces[piece]
		p.asked--
		if o == Given && !p.here {
			p.here = true
			s.left--
		}
	}
	if o == Given {
		s.came = now
	}
	if peer == Source {
		s.source.flying--
		s.source.blame(o, sourcePause, now, s.random)
		return
	}
	if p := s.peers[peer]; p != nil {
		p.flying--
		s.judge(p, o, now)
	}
}

// Failed enters a fault of a peer that was not at a request of ours, as when its holdings are looked at.
func (s *Swarm) Failed(peer string, o Outcome, now time.Time) {
	if p := s.peers[peer]; p != nil {
		s.judge(p, o, now)
	}
}

func (s *Swarm) judge(p *party, o Outcome, now time.Time) {
	p.blame(o, time.Hour, now, s.random)
	if o == Lacks && !p.out { // until it says again what it has
		s.count(p.has, -1)
		p.has = nil
	}
	if (o >= Away || o == Lacks && p.faults > promises) && !p.out {
		p.out = true
		s.count(p.has, -1)
	}
}

// blame leaves somebody alone, longer with each fault of a kind in a row, by about half more or less.
func (p *party) blame(o Outcome, most time.Duration, now time.Time, random *rand.Rand) {
	if o == Given {
		p.faults = 0
		return
	}
	if o != p.why {
		p.faults = 0
	}
	p.why = o
	pause := min(pauses[o][0]<<min(p.faults, 10), pauses[o][1], most)
	pause = pause/2 + time.Duration(random.Int64N(int64(pause)))
	p.faults++
	if until := now.Add(pause); until.After(p.until) {
		p.until = until
	}
}

// Wake returns until when nothing changes by itself.
func (s *Swarm) Wake(now time.Time) time.Time {
	wake := now.Add(time.Second)
	for _, p := range s.peers {
		if !p.ready(now) && p.until.Before(wake) {
			wake = p.until
		}
	}
	if !s.source.ready(now) && s.source.until.Before(wake) {
		wake = s.source.until
	}
	return wake
}
