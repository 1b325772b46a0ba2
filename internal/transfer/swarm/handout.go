package swarm

import "time"

// lately is how long the source leaves a piece to those whom it gave it: they give it to others.
const lately = 10 * time.Second

// Handout is what the source has given of one file. It is not for several goroutines.
type Handout struct{ given []given }

type given struct {
	times int
	last  time.Time
	to    string
}

// NewHandout returns that of a file of so many pieces.
func NewHandout(pieces int) *Handout { return &Handout{make([]given, pieces)} }

// Pick chooses what a host gets of the pieces that it asks for: what was given least often, and nothing that another
// host got lately, unless the one who asks is alone.
func (h *Handout) Pick(host string, wanted []int, alone bool, now time.Time) (piece int, ok bool) {
	piece = -1
	for _, i := range wanted {
		if i < 0 || i >= len(h.given) {
			continue
		}
		g := &h.given[i]
		if g.times > 0 && g.to != host && !alone && now.Sub(g.last) < lately {
			continue
		}
		if piece < 0 || g.times < h.given[piece].times {
			piece = i
		}
	}
	if piece < 0 {
		return -1, false
	}
	h.given[piece] = given{h.given[piece].times + 1, now, host}
	return piece, true
}

// Over enters whether a piece was given to its end. One that was not is given again to whoever asks.
func (h *Handout) Over(piece int, whole bool, now time.Time) {
	g := &h.given[piece]
	if g.last = now; !whole {
		g.times--
		g.last = now.Add(-lately)
	}
}
