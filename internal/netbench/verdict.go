package netbench

import (
	"fmt"

	"github.com/grange-project/grange/internal/selftest/verdict"
)

const (
	// lossWarning is what a wired network loses only when it is overloaded; the check sends one datagram at a time.
	lossWarning = 0.0005
	// lossBad is where TCP over a fleet's distances falls far below the rate of the link.
	lossBad = 0.01
	// uneven is how many times one way may be as fast as the other: offloads of a card differ, but not by that.
	uneven = 4
)

// Judge says what a check found.
func Judge(r Result) verdict.Finding {
	f := verdict.Finding{Verdict: verdict.Good, Reason: "nothing is lost, and both ways are alike",
		Figures: map[string]float64{"loss": r.Flood.Loss()}}
	loss := fmt.Sprintf("%.2g %% of the datagrams are lost: of %d sent, %d arrived and %d came back",
		100*r.Flood.Loss(), r.Flood.Sent, r.Flood.Arrived, r.Flood.Returned)
	fast, slow := max(r.There.Rate, r.Back.Rate), min(r.There.Rate, r.Back.Rate)
	switch {
	case r.Flood.Returned == 0:
		f.Verdict = verdict.Bad
		f.Reason = fmt.Sprintf("TCP passes and no datagram came back: of %d sent, %d arrived", r.Flood.Sent,
			r.Flood.Arrived)
		f.Remedy = "see the filters between both sides for UDP"
	case r.Flood.Loss() >= lossBad:
		f.Verdict, f.Reason = verdict.Bad, loss
		f.Remedy = "see cables, duplex and errors (`ip -s link`) of each card on the way, and the MTU of an overlay"
	case r.Flood.Loss() >= lossWarning:
		f.Verdict, f.Reason = verdict.Warning, loss
		f.Remedy = "repeat it on a quiet network, with more --packets; see drops in `ip -s link`"
	case slow*uneven < fast:
		f.Verdict = verdict.Warning
		f.Reason = fmt.Sprintf("one way is %.1f times as fast as the other", fast/max(slow, 1))
		f.Remedy = "see offloads (`ethtool -k`) and limits of rates on both sides"
	case r.Flood.Loss() > 0:
		f.Reason = loss + ", which is little"
	}
	return f
}
