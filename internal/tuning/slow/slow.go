package slow

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// Report is where a VM's time went between two looks.
type Report struct {
	Seconds float64 `json:"seconds"`
	VCPUs   int     `json:"vcpus"`
	// Shares of the time of all vCPUs, in per cent. The rest is what the guest idled.
	Guest  float64 `json:"guest_percent"`  // in its own code
	QEMU   float64 `json:"qemu_percent"`   // in QEMU's, which emulates something
	Kernel float64 `json:"kernel_percent"` // in the host's kernel: KVM, and what it is asked for
	Waits  float64 `json:"waits_percent"`  // ready to run, and without a CPU
	Disk   float64 `json:"disk_percent"`   // of the time of QEMU's thread that waited most for disks
	// what QEMU's other threads had, in per cent of one CPU
	Others  float64            `json:"others_percent"`
	Exits   map[string]float64 `json:"exits,omitempty"` // KVM's counters, a second of each vCPU
	Faults  float64            `json:"disk_faults"`     // page faults that read from a disk, a second
	Swapped farm.Bytes         `json:"swapped"`
	Unread  string             `json:"unread,omitempty"`
	Causes  []Cause            `json:"causes"` // the worst first
}

// Cause is one thing that slows a VM.
type Cause struct {
	Name string  `json:"name"`
	Cost float64 `json:"cost_percent,omitempty"` // of the time of its vCPUs, where that can be told
	Text string  `json:"text"`
	Next string  `json:"next"` // what to do
}

// Idle is what the vCPUs did not want.
func (r Report) Idle() float64 { return max(0, 100-r.Guest-r.QEMU-r.Kernel-r.Waits) }

// Compare says what became of a VM's time between two looks.
func Compare(p farm.Process, before, after Look) Report {
	took := after.At.Sub(before.At)
	r := Report{Seconds: took.Seconds(), Swapped: after.Swapped, Unread: after.Unread}
	var all Times
	vcpus := map[int]bool{}
	for _, t := range p.VCPUs() {
		vcpus[t.ID] = true
	}
	for id, now := range after.Threads {
		was, ok := before.Threads[id]
		if !ok {
			continue
		}
		d := now.less(was)
		r.Disk = max(r.Disk, percent(d.Disk, took))
		r.Faults += float64(d.Faults) / took.Seconds()
		if !vcpus[id] {
			r.Others += percent(d.User+d.System, took)
			continue
		}
		r.VCPUs++
		all = all.plus(d)
	}
	if r.VCPUs > 0 {
		whole := took * time.Duration(r.VCPUs)
		r.Guest, r.QEMU = percent(all.Guest, whole), percent(all.User-all.Guest, whole)
		r.Kernel, r.Waits = percent(all.System, whole), percent(all.Waited, whole)
		r.Exits = rates(before.Exits, after.Exits, whole)
	}
	r.Causes = r.causes()
	return r
}

func (t Times) less(o Times) Times {
	return Times{t.User - o.User, t.System - o.System, t.Guest - o.Guest, t.Disk - o.Disk, t.Waited - o.Waited,
		t.Faults - o.Faults}
}

func (t Times) plus(o Times) Times {
	return Times{t.User + o.User, t.System + o.System, t.Guest + o.Guest, t.Disk + o.Disk, t.Waited + o.Waited,
		t.Faults + o.Faults}
}

func percent(part, whole time.Duration) float64 {
	if whole <= 0 {
		return 0
	}
	return max(0, 100*part.Seconds()/whole.Seconds())
}

func rates(before, after map[string]uint64, whole time.Duration) map[string]float64 {
	if before == nil || after == nil {
		return nil
	}
	out := map[string]float64{}
	for name, n := range after {
		if was := before[name]; n > was {
			out[name] = float64(n-was) / whole.Seconds()
		}
	}
	return out
}

// Text is the report for people.
func (r Report) Text(name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, looked at for %.1f s\n", name, farm.Count(r.VCPUs, "vCPU"), r.Seconds)
	for _, line := range []struct {
		name  string
		share float64
	}{{"the guest's own code", r.Guest}, {"QEMU, emulating", r.QEMU}, {"the host's kernel", r.Kernel},
		{"waiting for a CPU", r.Waits}, {"idle", r.Idle()}} {
		fmt.Fprintf(&b, "  %-22s %5.1f %%\n", line.name, line.share)
	}
	fmt.Fprintf(&b, "QEMU's other threads: %.1f %% of a CPU\n", r.Others)
	if r.Exits != nil {
		fmt.Fprintf(&b, "exits a second of each vCPU: %s\n", r.exits())
	} else if r.Unread != "" {
		fmt.Fprintln(&b, r.Unread)
	}
	if len(r.Causes) == 0 {
		b.WriteString("nothing that this host does slows it\n")
	}
	for i, c := range r.Causes {
		fmt.Fprintf(&b, "%d. %s: %s\n   %s\n", i+1, c.Name, c.Text, strings.ReplaceAll(c.Next, " VM`", " "+name+"`"))
	}
	return b.String()
}

// mostExits is how many counters are shown.
const mostExits = 8

func (r Report) exits() string {
	names := slices.SortedFunc(maps.Keys(r.Exits), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.Exits[b], r.Exits[a]), strings.Compare(a, b))
	})
	var words []string
	for _, n := range names[:min(len(names), mostExits)] {
		words = append(words, fmt.Sprintf("%s %.0f", n, r.Exits[n]))
	}
	return strings.Join(words, ", ")
}
