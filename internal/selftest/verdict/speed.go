package verdict

import (
	"fmt"
	"slices"
	"time"
)

// Round is two starts of each side, in turns: ours, QEMU's, QEMU's, ours.
type Round struct{ Ours, Raw time.Duration } // means of both

// Starts are measured starts.
type Starts struct {
	Rounds  []Round
	Phases  map[string][]float64 // milliseconds, of our side
	Code    string               // of why there are none
	NoRaw   string               // why QEMU alone cannot boot the guest
	Busy    bool                 // no CPU was free for both sides
	Details []string
}

const (
	leastRounds = 2
	mostRounds  = 8
	enoughTime  = 20 * time.Second
)

// MoreRounds reports whether another round of starts is worth its time.
func MoreRounds(done int, took time.Duration) bool {
	return done < leastRounds || done < mostRounds && took < enoughTime
}

const (
	goodStart      = 1.5
	tolerableStart = 3
)

// JudgeStart decides whether starts are as fast as QEMU alone, nearly.
func JudgeStart(s Starts) Finding {
	switch {
	case s.NoRaw != "":
		return Finding{Verdict: NotApplicable, Reason: s.NoRaw,
			Remedy: "name an image with --image that QEMU boots without a disk, as micro"}
	case s.Busy:
		return Finding{Verdict: NotApplicable, Reason: "no CPU stayed free for both sides", Remedy: whenQuiet}
	case len(s.Rounds) == 0:
		f := Failed("no start was measured", s.Code)
		f.Details = s.Details
		return f
	}
	var ours, raw, ratios []float64
	for _, r := range s.Rounds {
		o, q := milliseconds(r.Ours), milliseconds(r.Raw)
		ours, raw, ratios = append(ours, o), append(raw, q), append(ratios, o/q)
	}
	ratio := median(ratios)
	f := Finding{Verdict: band(ratio, goodStart, tolerableStart), Figures: map[string]float64{"ratio": ratio,
		"ratio_least": slices.Min(ratios), "ratio_most": slices.Max(ratios), "ms": median(ours), "raw_ms": median(raw),
		"pairs": float64(2 * len(s.Rounds))}}
	longest, most := "", 0.0
	for phase, all := range s.Phases {
		m := median(all)
		f.Figures["phase_"+phase+"_ms"] = m
		if m > most && phase != "boot" && phase != "total" {
			longest, most = phase, m
		}
	}
	f.Reason = fmt.Sprintf("a job takes %.0f ms, QEMU alone boots the same guest in %.0f ms: %.2f times that, of %d "+
		"pairs", median(ours), median(raw), ratio, 2*len(s.Rounds))
	if f.Verdict != Good {
		f.Remedy = fmt.Sprintf("`grange exec --verbose -- true` shows its phases; beside the boot the longest is %q, "+
			"%.0f ms",
			longest, most)
	}
	return f
}

// Loads are runs of a fixed load, in turns in a VM and on the CPU that it has.
type Loads struct {
	Job
	Emulated    bool
	Nested      bool                       // the host is a VM itself
	Guest, Host map[string][]time.Duration // by kind of load
}

const (
	goodCPU      = 1.1
	tolerableCPU = 1.3
	// On a host that is a VM itself each exit of the guest passes through two hypervisors, whatever is tuned.
	nestedCPU = 0.2
)

// computing is the kind of load that the verdict rests on; others are told.
const computing = "compute"

// JudgeCPU decides whether a guest computes as fast as the host. The fastest run of each side counts: noise only ever
// adds.
func JudgeCPU(l Loads) Finding {
	if none := l.noJob(); none != nil {
		return *none
	}
	f := Finding{Details: l.Details, Figures: map[string]float64{}}
	for kind, guest := range l.Guest {
		host := l.Host[kind]
		if len(guest) == 0 || len(host) == 0 || slices.Min(host) <= 0 {
			continue
		}
		f.Figures[kind+"_ratio"] = slices.Min(guest).Seconds() / slices.Min(host).Seconds()
		f.Figures[kind+"_ms"], f.Figures[kind+"_host_ms"] = milliseconds(slices.Min(guest)), milliseconds(
			slices.Min(host))
	}
	ratio, ok := f.Figures[computing+"_ratio"]
	if !ok {
		return Failed("the load was not measured", "")
	}
	more := 0.0
	if l.Nested {
		more = nestedCPU
	}
	f.Verdict = band(ratio, goodCPU+more, tolerableCPU+more)
	f.Reason = fmt.Sprintf("computing takes %.2f times as long as on the host", ratio)
	if walk, ok := f.Figures["memory_ratio"]; ok {
		f.Reason += fmt.Sprintf(", walking through memory %.2f times", walk)
	}
	if l.Nested {
		f.Reason += "; the host is a virtual machine itself"
	}
	switch {
	case f.Verdict != Good && l.Emulated:
		f.Remedy = "VMs are emulated: see the check kvm"
	case f.Verdict != Good:
		f.Remedy = "`grange tune audit`: the frequency governor, hardware page tables, and what else runs on the " +
			"CPUs of VMs"
	}
	return f
}
