package usage

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// A reason is why a record of a host counts for nobody: a word, and a sentence for people.
type reason struct{ word, text string }

// The words.
const (
	outCores     = "cores"          // more than the host has
	outTime      = "time"           // more than there is between its start and its end
	outFuture    = "future"         // its end is still to come
	outBefore    = "before-joining" // it began before its host joined
	outCPU       = "cpu"            // more CPU time than the host has
	outFull      = "host-full"      // with others it is more than the host can run
	outPlace     = "place"          // its VM was not on the host then
	outSize      = "vm-size"        // its VM had fewer cores
	outVMFull    = "vm-full"        // with others of its VM it is more than that can use
	outWithdrawn = "withdrawn"      // people took it back
)

// early is how far clocks of hosts may be from the server's.
const early = time.Hour

// bounds are what the server knows of a host.
type bounds struct {
	threads int
	joined  time.Time // for the first time
	now     time.Time
}

// boundsOf reads what is known of a host. More than twice the threads that a host had when it joined are not believed:
// SMT that is switched on doubles them.
func boundsOf(h farm.Host, now time.Time) bounds {
	b := bounds{threads: h.Facts.Topology.Online.Len(), joined: h.Enrolled, now: now}
	if h.Threads.Most > 0 {
		b.threads = min(h.Threads.Most, 2*h.Threads.First)
	}
	if !h.Known.IsZero() {
		b.joined = h.Known
	}
	return b
}

// begin is when a record began: at its start, or as much earlier as its wall time demands.
func begin(u api.Usage) time.Time {
	if begun := u.End.Add(-seconds(u.Wall)); begun.Before(u.Start) {
		return begun
	}
	return u.Start
}

// outside is why a host cannot have run what a record says, by the record alone; nil: it can.
func (b bounds) outside(u api.Usage) *reason {
	switch {
	case u.Cores > b.threads:
		return &reason{outCores, fmt.Sprintf("it has %s, and the host has %s", farm.Count(u.Cores, "core"),
			farm.Count(b.threads, "thread"))}
	case u.End.After(b.now.Add(early)):
		return &reason{outFuture, "it ends at " + when(u.End) + ", and came at " + when(b.now)}
	case u.End.Sub(u.Start) < seconds(u.Wall)-early:
		return &reason{outTime, fmt.Sprintf("it took %v, and there are %v between its start and its end",
			seconds(u.Wall).Round(time.Second), u.End.Sub(u.Start).Round(time.Second))}
	case begin(u).Before(b.joined.Add(-early)):
		return &reason{outBefore, "it begins at " + when(begin(u)) + ", and the host joined at " + when(b.joined)}
	case used(u) > float64(b.threads)*(u.Wall+cpuSlack):
		return &reason{outCPU, fmt.Sprintf("it has %v of CPU time in %v, and the host has %s",
			seconds(used(u)).Round(time.Second), seconds(u.Wall).Round(time.Second), farm.Count(b.threads, "thread"))}
	}
	return nil
}

// cpuSlack is for records that are short: seconds.
const cpuSlack = 60

func when(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// stayOf finds the stay of a VM on a host in which a record is, or why it is in none.
func stayOf(stays []store.Place, u api.Usage, now time.Time) (store.Place, *reason) {
	if len(stays) == 0 {
		return store.Place{}, &reason{outPlace, fmt.Sprintf("VM %.40q was never on the host", u.VM)}
	}
	i := slices.IndexFunc(stays, func(s store.Place) bool {
		return !begin(u).Before(s.Since.Add(-early)) && (s.Until.IsZero() || !u.End.After(s.Until.Add(early)))
	})
	if i < 0 {
		last := stays[len(stays)-1]
		if last.Until.IsZero() {
			last.Until = now
		}
		return store.Place{}, &reason{outPlace, "it is of " + when(begin(u)) + " to " + when(u.End) +
			", and its VM was on the host from " + when(last.Since) + " to " + when(last.Until)}
	}
	s := stays[i]
	if !s.Since.IsZero() && u.Cores > s.CPUs { // of a stay from before this was kept nobody knows the size
		return s, &reason{outSize, fmt.Sprintf("it has %s, and its VM had %d", farm.Count(u.Cores, "core"), s.CPUs)}
	}
	return s, nil
}

// mostFull is how many times the threads of a host its records of an hour may add up to, and how many times its cores
// those of a VM: VMs that are suspended keep their cores, and QEMU has threads of its own beside them.
const mostFull = 4

// sums are the core seconds of hours of a host or a VM, as they are read and changed in one transaction.
type sums struct {
	of      string // the name of a host, or keyOf a VM
	days    map[string]*store.Hours
	changed map[string]bool
}

const dayLayout = "2006-01-02"

// leastWall is how long a record took at least: seconds.
const leastWall = 1.0

// jobCPU is what the guest of a record said of itself, where that can be: nil where it cannot. The rest of the record
// is the host's word, and stands.
func jobCPU(u api.Usage) *float64 {
	if u.JobCPU == nil || !within(*u.JobCPU, 2*float64(max(u.Cores, 1))*max(u.Wall, leastWall)) {
		return nil
	}
	return u.JobCPU
}

// charges are the core seconds of a record: of its cores, or of its CPU time where that is more.
func charges(u api.Usage) float64 {
	busy := max(float64(u.Cores)*u.Wall, used(u))
	if u.JobCPU != nil {
		busy = max(busy, *u.JobCPU)
	}
	return busy
}

// hourly calls do with each hour of a record, and what it charges in it.
func hourly(u api.Usage, do func(day string, hour int, used float64)) {
	busy, wall := charges(u), max(u.Wall, leastWall)
	end, day := u.End.UTC(), ""
	for at := end.Add(-seconds(wall)); at.Before(end); {
		next := at.Truncate(time.Hour).Add(time.Hour)
		if next.After(end) {
			next = end
		}
		if day == "" || at.Hour() == 0 {
			day = at.Format(dayLayout)
		}
		do(day, at.Hour(), busy*next.Sub(at).Seconds()/wall)
		at = next
	}
}

func sumsOf(key string) *sums {
	return &sums{of: key, days: map[string]*store.Hours{}, changed: map[string]bool{}}
}

// keyOf is under which name the hours of a VM are kept: no host is called so.
func keyOf(vm string) string { return "vm/" + vm }

// read brings the days of a record that are not known yet.
func (s *sums) read(t *store.Tx, u api.Usage) error {
	first, last := "", ""
	hourly(u, func(day string, _ int, _ float64) {
		if s.days[day] == nil {
			first, last = cmp.Or(first, day), day
		}
	})
	if first == "" {
		return nil
	}
	days, err := t.UsageHours(s.of, first, last)
	if err != nil {
		return err
	}
	hourly(u, func(day string, _ int, _ float64) {
		if s.days[day] != nil {
			return
		}
		if s.days[day] = days[day]; days[day] == nil {
			s.days[day] = &store.Hours{}
		}
	})
	return nil
}

// full is whether a record is too much beside those that count already, for so many cores; "": it is not.
func (s *sums) full(u api.Usage, cores int) (text string) {
	most := mostFull * float64(cores) * hour
	hourly(u, func(day string, hour int, used float64) {
		if sum := s.days[day][hour] + used; text == "" && used > 0 && sum > most {
			text = fmt.Sprintf("with the others it is %.0f core hours in the hour from %s %02d:00, on %s", sum/3600,
				day, hour, farm.Count(cores, "CPU"))
		}
	})
	return text
}

// add counts a record.
func (s *sums) add(u api.Usage) {
	hourly(u, func(day string, hour int, used float64) {
		if used > 0 {
			s.days[day][hour] += used
			s.changed[day] = true
		}
	})
}

// write writes the days that have changed.
func (s *sums) write(t *store.Tx) error {
	for day := range s.changed {
		if err := t.SetUsageHours(s.of, day, *s.days[day]); err != nil {
			return err
		}
	}
	return nil
}
