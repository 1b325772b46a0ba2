package machine

import (
	"sync"
	"time"

	"github.com/grange-project/grange/internal/guest"
)

// Load is how busy a guest says that it is. It may say what it likes: of another VM it says nothing.
type Load struct {
	guest.Load
	// Waiting is the part of the last minutes in which its CPUs had nothing to do, for programs waited for a disk; and
	// SwappedIn how many pages a second came back from swap meanwhile. Both are 0 until a minute is known.
	Waiting, SwappedIn float64
}

const (
	loadWindow = 5 * time.Minute
	loadStep   = 30 * time.Second // between samples that are kept
	loadLeast  = time.Minute      // that a window has to be long to say anything
	loadFresh  = 2 * time.Minute  // after which a guest that says nothing more is not known any more
)

// loads are what a guest has reported in the last minutes: few samples, however often it reports.
type loads struct {
	mu   sync.Mutex
	kept []loadSample // oldest first, the first one about a window old
	last loadSample
}

type loadSample struct {
	at time.Time
	guest.Load
}

func (l *loads) take(now time.Time, report guest.Load) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if report.CPU < l.last.CPU { // it has started anew
		l.kept = nil
	}
	l.last = loadSample{now, report}
	if n := len(l.kept); n == 0 || now.Sub(l.kept[n-1].at) >= loadStep {
		l.kept = append(l.kept, l.last)
	}
	for len(l.kept) > 1 && now.Sub(l.kept[1].at) >= loadWindow {
		l.kept = l.kept[1:]
	}
}

// now is what is known; false: the guest has said nothing lately.
func (l *loads) now(now time.Time) (Load, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last.at.IsZero() || now.Sub(l.last.at) > loadFresh {
		return Load{}, false
	}
	out := Load{Load: l.last.Load}
	first := l.kept[0]
	passed := l.last.at.Sub(first.at)
	if passed < loadLeast {
		return out, true
	}
	out.Waiting = share(first.Wait, l.last.Wait, first.CPU, l.last.CPU)
	if l.last.SwapIn > first.SwapIn {
		out.SwappedIn = float64(l.last.SwapIn-first.SwapIn) / passed.Seconds()
	}
	return out, true
}

// share is how much of one counter's growth is in that of another, from 0 to 1 whatever the numbers are.
func share(part0, part, all0, all uint64) float64 {
	if part <= part0 || all <= all0 {
		return 0
	}
	return min(1, float64(part-part0)/float64(all-all0))
}

// Load is how busy the machine's guest says that it is; false: it says nothing, as an older grange-guest.
func (m *Machine) Load() (Load, bool) { return m.Control.loads.now(time.Now()) }
