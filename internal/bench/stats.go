package bench

import (
	"math"
	"slices"
	"time"

	"golang.org/x/perf/benchmath"
)

// confidence is that of all intervals.
const confidence = 0.95

// Interval is a median, and where it lies. Of too few values Low and High are not known, and 0.
type Interval struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low,omitempty"`
	High   float64 `json:"high,omitempty"`
}

// interval is that of some values.
func interval(values []float64) Interval { return IntervalOf(values, confidence) }

// Fewest is how many values it takes for an interval of that confidence: with less, the median may be outside of all.
func Fewest(confidence float64) int { return int(math.Ceil(1 - math.Log2(1-confidence))) }

// IntervalOf is that of some values, of which nothing is assumed, with another confidence.
func IntervalOf(values []float64, confidence float64) Interval {
	if len(values) < Fewest(confidence) {
		return Interval{Median: median(values)}
	}
	s := benchmath.AssumeNothing.Summary(sampleOf(values), confidence)
	return Interval{Median: s.Center, Low: s.Lo, High: s.Hi}
}

// Known reports whether it is known where the median lies.
func (i Interval) Known() bool { return i.High > 0 }

// Shows reports whether the interval leaves a value out.
func (i Interval) Shows(value float64) bool { return i.Known() && (value < i.Low || value > i.High) }

// within reports whether the interval is as narrow as it is to be, as a part of its median.
func (i Interval) within(part float64) bool { return i.Known() && i.High-i.Low <= 2*part*i.Median }

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return middle(slices.Sorted(slices.Values(values)))
}

// middle is the median of values that are in order, of which there is one at least.
func middle(sorted []float64) float64 {
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

func sampleOf(values []float64) *benchmath.Sample {
	return benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
}

// outliers is how many values are far from the others: more than three times as far as is usual. They count as all
// others do.
func outliers(values []float64) (n int) {
	middle := median(values)
	var off []float64
	for _, v := range values {
		off = append(off, math.Abs(v-middle))
	}
	const normal = 1.4826 // the usual distance as a standard deviation has it
	usual := normal * median(off)
	for _, d := range off {
		if d > 3*usual && d > 0 {
			n++
		}
	}
	return n
}

// Round is one measurement of a workload: on the host, twice in VMs, and on the host again, so that what the machine
// does meanwhile meets both sides alike. Each is the sum of what all members did in a second.
type Round struct {
	Host [2]float64 `json:"host"`
	VM   [2]float64 `json:"vm"`
	// what the host took meanwhile; 0: not known
	HostWatts [2]float64 `json:"host_watts,omitzero"`
	VMWatts   [2]float64 `json:"vm_watts,omitzero"`
}

// ratio is what VMs did, as a part of what the host did.
func (r Round) ratio() float64 { return (r.VM[0] + r.VM[1]) / (r.Host[0] + r.Host[1]) }

// Result is a workload at a size.
type Result struct {
	Size     Size     `json:"size"`
	Workload string   `json:"workload"`
	Unit     string   `json:"unit,omitempty"`
	Host     float64  `json:"host"`  // median rate of the whole host
	VM       float64  `json:"vm"`    // and of all VMs together
	Ratio    Interval `json:"ratio"` // of VM to Host
	Noise    float64  `json:"noise"` // how far the host is from itself, as a part: half of the measurements are nearer
	Outliers int      `json:"outliers"`
	Rounds   []Round  `json:"rounds"`
	Why      string   `json:"why,omitempty"` // there are not more rounds
	// median power of the host while it works by itself, and while its VMs do; 0: not known
	HostWatts float64 `json:"host_watts,omitempty"`
	VMWatts   float64 `json:"vm_watts,omitempty"`
}

// ResultOf are the rounds of a workload.
func resultOf(s Size, workload, unit string, rounds []Round) Result {
	r := Result{Size: s, Workload: workload, Unit: unit, Rounds: rounds}
	var host, vm, ratios, noise, hostWatts, vmWatts []float64
	for _, one := range rounds {
		hostWatts, vmWatts = append(hostWatts, one.HostWatts[:]...), append(vmWatts, one.VMWatts[:]...)
		host, vm = append(host, one.Host[:]...), append(vm, one.VM[:]...)
		ratios = append(ratios, one.ratio())
		noise = append(noise, math.Abs(one.Host[0]/one.Host[1]-1))
	}
	r.Host, r.VM, r.Ratio, r.Noise, r.Outliers = median(host), median(vm), interval(ratios), median(noise),
		outliers(ratios)
	r.HostWatts, r.VMWatts = median(hostWatts), median(vmWatts)
	return r
}

// Shown is what the measurement shows: a loss, a gain, or nothing.
func (r Result) Shown() string {
	switch {
	case !r.Ratio.Known():
		return "too few rounds"
	case !r.Ratio.Shows(1):
		return "no difference shown"
	case r.Ratio.Median < 1:
		return "loss"
	}
	return "gain"
}

// Limits are when a workload has been measured enough.
type Limits struct {
	Budget time.Duration // of one workload at one size; twice that where there is no interval yet
	Narrow float64       // half of the interval, as a part of the median
	Rounds int           // at most
}

// enough is why there are no more rounds; "": there are.
func (l Limits) enough(rounds []Round, took time.Duration) string {
	var ratios []float64
	for _, r := range rounds {
		ratios = append(ratios, r.ratio())
	}
	switch n := len(rounds); {
	case interval(ratios).within(l.Narrow):
		return "narrow enough"
	case n >= l.Rounds:
		return "no more rounds"
	case took >= 2*l.Budget, took >= l.Budget && n >= Fewest(confidence):
		return "the time was over"
	}
	return ""
}
