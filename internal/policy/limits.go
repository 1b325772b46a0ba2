package policy

import (
	"cmp"
	"slices"
)

// Limits are what one user may hold of a host at once, in all VMs that were asked for outside of batch jobs. Root has
// none.
type Limits struct {
	CPUs, Memory, Disk Share
	Bandwidth          Share // each way
	// in order: for each setting the first one counts that matches and says anything of it
	Except []Exception
}

// Exception is what some users may hold instead. A zero Share says nothing.
type Exception struct {
	Whom               Rule // its users and groups alone
	CPUs, Memory, Disk Share
	Bandwidth          Share
}

// Of are the limits of one user. Whose names nobody knows, no exception by name is for.
func (l Limits) Of(who Who) Limits {
	out := Limits{CPUs: l.CPUs, Memory: l.Memory, Disk: l.Disk, Bandwidth: l.Bandwidth}
	for _, e := range slices.Backward(l.Except) {
		if !e.Whom.Matches(who) {
			continue
		}
		out.CPUs, out.Memory, out.Disk = cmp.Or(e.CPUs, out.CPUs), cmp.Or(e.Memory,
			out.Memory), cmp.Or(e.Disk, out.Disk)
		out.Bandwidth = cmp.Or(e.Bandwidth, out.Bandwidth)
	}
	return out
}

// Share is a part of what there is: "75%", or an amount.
type Share struct {
	Percent int // 0: Amount counts
	Amount  uint64
}

// Of is the share of all there is; never 0 of something.
func (s Share) Of(all uint64) uint64 {
	if s.Percent == 0 {
		return s.Amount
	}
	return max(all/100*uint64(s.Percent)+all%100*uint64(s.Percent)/100, min(all, 1))
}
