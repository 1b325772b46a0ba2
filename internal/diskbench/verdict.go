package diskbench

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Median is the middle of what the rounds gave for one choice and pattern, and how far apart they were.
type Median struct {
	Result
	Spread float64 `json:"spread"` // of the rates: largest by smallest, 1 where all are equal
	Rounds int     `json:"rounds"`
}

// Medians are of each choice and pattern, in the order of their first results.
func Medians(all []Result) (out []Median) {
	type key struct {
		choice, pattern string
		block           uint64
	}
	groups, order := map[key][]Result{}, []key{}
	for _, r := range all {
		k := key{r.Choice, r.Pattern, r.Block}
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], r)
	}
	for _, k := range order {
		g := groups[k]
		slices.SortFunc(g, func(a, b Result) int { return cmp.Compare(a.Rate, b.Rate) })
		out = append(out, Median{g[len(g)/2], g[len(g)-1].Rate / g[0].Rate, len(g)})
	}
	return out
}

// Verdict is what is recommended, and by how much.
type Verdict struct {
	Choice string  `json:"choice"`
	Next   string  `json:"next,omitempty"` // the second best
	Margin float64 `json:"margin"`         // how many times faster than that, over the patterns that count
	// how far apart the rounds of one measurement were, at the median; 0: there was one
	Noise float64 `json:"noise"`
	Sure  bool    `json:"sure"` // the margin is more than the noise
	// re-reads were measured and do not count
	WithoutCached bool `json:"without_cached,omitempty"`
}

// patterns are those that count.
func (v Verdict) patterns() string {
	if v.WithoutCached {
		return "all patterns but the re-read"
	}
	return "all patterns"
}

func (v Verdict) String() string {
	switch {
	case v.Next == "":
		return fmt.Sprintf("%s is the only choice that was measured", v.Choice)
	case v.Noise == 0:
		return fmt.Sprintf("%s is %.2f times as fast as the next, %s, over %s; one round says nothing of the "+
			"noise", v.Choice, v.Margin, v.Next, v.patterns())
	case !v.Sure:
		return fmt.Sprintf("no choice is better than the noise: %s is %.2f times as fast as %s over %s, and "+
			"rounds of one measurement are %.2f times apart", v.Choice, v.Margin, v.Next, v.patterns(), v.Noise)
	}
	return fmt.Sprintf("%s is %.2f times as fast as the next, %s, over %s (rounds of one measurement are "+
		"%.2f times apart)", v.Choice, v.Margin, v.Next, v.patterns(), v.Noise)
}

// cached reports whether a pattern measures the page cache where a choice uses it, and not the disk.
func (m Median) cached() bool { return m.Pattern == "re-read" }

// Recommend leaves re-reads out, and names the choice with the largest geometric mean of rates: what is ten times as
// fast by one pattern and ten times as slow by another is no better than what is the same by both.
func Recommend(all []Median) Verdict {
	sums, counts := map[string]float64{}, map[string]int{}
	var spreads []float64
	var v Verdict
	for _, m := range all {
		if m.cached() {
			v.WithoutCached = true
			continue
		}
		sums[m.Choice] += math.Log(m.Rate)
		counts[m.Choice]++
		if m.Rounds > 1 {
			spreads = append(spreads, m.Spread)
		}
	}
	if len(sums) == 0 {
		return Verdict{}
	}
	names := make([]string, 0, len(sums))
	for name := range sums {
		names = append(names, name)
	}
	mean := func(name string) float64 { return sums[name] / float64(counts[name]) }
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(mean(b), mean(a)), cmp.Compare(a, b)) })
	slices.Sort(spreads)
	v.Choice, v.Margin = names[0], 1
	if len(spreads) > 0 {
		v.Noise = spreads[len(spreads)/2]
	}
	if len(names) > 1 {
		v.Next, v.Margin = names[1], math.Exp(mean(names[0])-mean(names[1]))
		v.Sure = v.Noise > 0 && v.Margin > v.Noise
	}
	return v
}
