package bench

import (
	"cmp"
	"slices"

	"golang.org/x/perf/benchmath"
)

// Start is one start of a VM on a host: what booted, and how long that took. All hosts of a kind do the same work then,
// many times a day, whatever the jobs are.
type Start struct {
	Host  string
	Kind  string // type of hardware
	Image string
	CPUs  int
	Boot  float64 // seconds
}

// Slow is a host on which guests boot more slowly than on others of its kind.
type Slow struct {
	Start          // Boot is the median of the host
	Starts int     // of the host
	Hosts  int     // peers: others of its kind that have booted the same
	Peers  float64 // the median of all their boots
	P      float64 // of a difference like that by chance; 1 where it is too small to matter
}

// Ratio is how much longer the host takes than its peers.
func (s Slow) Ratio() float64 { return s.Boot / s.Peers }

// What is told as slow. No host is called slow for what nobody would notice, and of many hosts that are all alike the
// chance that any is called slow is less than wrongSlow.
const (
	leastSlow   = 1.05
	wrongSlow   = 0.05
	leastStarts = 8 // of a host, of the same
	leastPeers  = 2
)

// SlowHosts are the hosts that are slower than their peers, the slowest first, and how many could be compared. Each is
// there once, by what it has started most often.
func SlowHosts(starts []Start) (slow []Slow, compared int) {
	hosts := map[string]bool{}
	var all []Slow
	for _, g := range alike(starts) {
		all = append(all, g.compare()...)
	}
	for _, s := range all {
		hosts[s.Host] = true
	}
	slices.SortFunc(all, func(a, b Slow) int {
		return cmp.Or(cmp.Compare(b.Starts, a.Starts), cmp.Compare(a.Image, b.Image), cmp.Compare(a.CPUs, b.CPUs),
			cmp.Compare(a.Host, b.Host))
	})
	told := map[string]bool{}
	for _, s := range all {
		if s.Ratio() >= leastSlow && s.P <= wrongSlow/float64(len(all)) && !told[s.Host] {
			told[s.Host] = true
			slow = append(slow, s)
		}
	}
	slices.SortFunc(slow, func(a, b Slow) int {
		return cmp.Or(cmp.Compare(b.Ratio(), a.Ratio()), cmp.Compare(a.Host, b.Host))
	})
	return slow, len(hosts)
}

// sameStarts are starts of the same on hosts of the same kind, by host.
type sameStarts struct {
	Start // what is the same
	boots map[string][]float64
}

func alike(starts []Start) map[Start]*sameStarts {
	groups := map[Start]*sameStarts{}
	for _, s := range starts {
		key := Start{Kind: s.Kind, Image: s.Image, CPUs: s.CPUs}
		if s.Kind == "" || s.Boot <= 0 {
			continue
		}
		if groups[key] == nil {
			groups[key] = &sameStarts{key, map[string][]float64{}}
		}
		groups[key].boots[s.Host] = append(groups[key].boots[s.Host], s.Boot)
	}
	return groups
}

// hostBoot is a boot, and where it was.
type hostBoot struct {
	host string
	boot float64
}

// compare compares each host that has started the same often enough with all others.
func (g sameStarts) compare() (all []Slow) {
	if len(g.boots) <= leastPeers {
		return nil
	}
	var sorted []hostBoot // once for all hosts, which may be thousands
	for host, boots := range g.boots {
		for _, b := range boots {
			sorted = append(sorted, hostBoot{host, b})
		}
	}
	slices.SortFunc(sorted, func(a, b hostBoot) int { return cmp.Compare(a.boot, b.boot) })
	for host, own := range g.boots {
		if len(own) < leastStarts {
			continue
		}
		others := make([]float64, 0, len(sorted)-len(own))
		for _, b := range sorted {
			if b.host != host {
				others = append(others, b.boot)
			}
		}
		s := Slow{Start: g.Start, Starts: len(own), Hosts: len(g.boots) - 1, Peers: middle(others), P: 1}
		s.Host, s.Boot = host, median(own)
		if s.Ratio() >= leastSlow { // of the others nobody asks how likely they are
			s.P = benchmath.AssumeNothing.Compare(sampleOf(own), sampleOf(others)).P
		}
		all = append(all, s)
	}
	return all
}
