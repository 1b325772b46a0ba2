package capacity

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Loss is what VMs lose against the host itself, by their CPUs: shares of 1, in the order of CPUs. None: nothing is
// known, and nothing is lost.
type Loss []SizeLoss

// SizeLoss is what VMs of one size lose.
type SizeLoss struct {
	CPUs  int
	Share float64
}

// Of is the loss of a VM of a size: between two that are known, in proportion; outside of them, as the nearest.
func (l Loss) Of(cpus int) float64 {
	i, found := slices.BinarySearchFunc(l, cpus, func(s SizeLoss, n int) int { return cmp.Compare(s.CPUs, n) })
	switch {
	case len(l) == 0:
		return 0
	case found:
		return l[i].Share
	case i == 0:
		return l[0].Share
	case i == len(l):
		return l[i-1].Share
	}
	low, high := l[i-1], l[i]
	return low.Share + (high.Share-low.Share)*float64(cpus-low.CPUs)/float64(high.CPUs-low.CPUs)
}

// ParseLoss reads losses in per cent by CPUs, as 8=2.5,16=8.4,32=12.9.
func ParseLoss(text string) (l Loss, err error) {
	for part := range strings.SplitSeq(text, ",") {
		size, share, ok := strings.Cut(strings.TrimSpace(part), "=")
		cpus, err1 := strconv.Atoi(size)
		percent, err2 := strconv.ParseFloat(share, 64)
		if !ok || err1 != nil || err2 != nil || cpus < 1 || math.IsNaN(percent) || percent <= -100 || percent >= 100 {
			return nil, demand(fmt.Sprintf("invalid loss %q", part), "write CPUS=PERCENT, for example 8=2.5,32=12.9")
		}
		l = append(l, SizeLoss{cpus, percent / 100})
	}
	slices.SortFunc(l, func(a, b SizeLoss) int { return cmp.Compare(a.CPUs, b.CPUs) })
	for i := 1; i < len(l); i++ {
		if l[i].CPUs == l[i-1].CPUs {
			return nil, demand(fmt.Sprintf("two losses of VMs of %d CPUs", l[i].CPUs), "name each size once")
		}
	}
	return l, nil
}
