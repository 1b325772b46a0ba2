package broker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
)

// Asking a batch system about one host takes it some hundredths of a second, and thousands may be closed at once: it is
// asked about those that it has to do something for, and then about those that have jobs, as far as the time goes. The
// others have their turn at the next passes.

// closeTimeout is for how long a pass asks about hosts, and what one answer may take: reservations come after it,
// whatever is left to close.
const closeTimeout = Timeout / 3

// CountAgain is when a host that was closed and empty is asked about again. It takes no new jobs; but somebody may have
// opened it, and closed it again, between two passes.
const CountAgain = 5 * time.Minute

// closing is what was done last about a host.
type closing struct {
	why    string // it was closed there, for this; "": it was not
	asked  time.Time
	answer hostAnswer
}

// turn is a host that the batch system is asked about.
type turn struct {
	host farm.Host
	node batch.Node
	why  string // it is to be closed; "": it is to be opened
}

// close has hosts that people closed, drain or fenced be closed in the batch system, and those that are open, opened,
// if it was us who closed them. What fails is tried again at the next pass.
func (b *brokerPass) close(ctx context.Context, was Note, note *Note) {
	soon, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	for _, t := range b.turns(was, note) {
		if soon.Err() != nil {
			return
		}
		b.take(ctx, t, note)
	}
}

// turns are the hosts to be asked about, the most urgent first. What is known of hosts without asking is noted.
func (b *brokerPass) turns(was Note, note *Note) []turn {
	var first, then []turn
	before := b.memory.closed
	b.memory.closed = map[string]closing{}
	for _, h := range b.hosts {
		n, known := b.nodes[h.ID]
		why := b.closing(h)
		if why == "" && !(n.Closed && n.Ours) {
			continue
		}
		if !known {
			note.Hosts[h.ID] = hostAnswer{Error: fmt.Sprintf("%s knows no host %s", b.system.Name(), h.Name)}
			continue
		}
		last, asked := before[h.ID]
		if asked {
			b.memory.closed[h.ID] = last
		} else {
			last.answer, asked = was.Hosts[h.ID]
		}
		if asked && why != "" && (n.Closed || last.answer.Error != "") {
			note.Hosts[h.ID] = last.answer
		}
		switch {
		case why == "" || !n.Closed || last.why != why: // so also when it failed, or somebody opened it there
			first = append(first, turn{h, n, why})
		case last.answer.Jobs > 0 || b.Now().Sub(last.asked) >= CountAgain:
			then = append(then, turn{h, n, why})
		}
	}
	for _, turns := range [][]turn{first, then} { // of those, whoever was asked about longest ago
		slices.SortStableFunc(turns,
			func(x, y turn) int { return before[x.host.ID].asked.Compare(before[y.host.ID].asked) })
	}
	return append(first, then...)
}

// take closes or opens a host in the batch system, and notes what came of it.
func (b *brokerPass) take(ctx context.Context, t turn, note *Note) {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	var a hostAnswer
	var err error
	if t.why != "" {
		var jobs []batch.Running
		jobs, err = b.system.Drain(ctx, t.node.Name, t.why)
		a.Closed = t.node.Closed || err == nil
		for _, j := range jobs {
			if j.Reservation == "" {
				a.Jobs++
			}
		}
	} else {
		err = b.system.Open(ctx, t.node.Name)
		a.Closed = err != nil
	}
	done := closing{asked: b.Now()}
	if err != nil {
		a.Error = err.Error()
	} else {
		done.why = t.why
		if (t.why != "") != t.node.Closed {
			b.Log.Info("host in its batch system", "host", t.host.Name, "cell", b.cell.Name, "closed", t.why != "",
				"why", t.why)
		}
	}
	done.answer = a
	b.memory.closed[t.host.ID] = done
	if delete(note.Hosts, t.host.ID); t.why != "" || a.Error != "" {
		note.Hosts[t.host.ID] = a
	}
}

// closing is why a host is to be closed in its batch system; "": it is to be open.
func (b *brokerPass) closing(h farm.Host) string {
	d, what := h.DrainIn(b.cell)
	switch {
	case d.Active():
		return cmp.Or(d.Reason, what+" is being drained")
	case !h.Fenced.IsZero():
		return cmp.Or(h.Reason, "fenced")
	case h.Closed:
		return cmp.Or(h.Reason, "closed")
	case b.cell.Closed:
		return cmp.Or(b.cell.Reason, "cell "+b.cell.Name+" is closed")
	}
	return ""
}
