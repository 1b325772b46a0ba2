package usage

import (
	"math"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

var noon = time.Date(2026, 10, 20, 12, 0, 0, 0, time.UTC)

// aRecord is of four cores in the hour up to noon.
func aRecord() api.Usage {
	return api.Usage{Cores: 4, Start: noon.Add(-time.Hour), End: noon, Wall: 3600, CPU: new(4.0 * 3600)}
}

// TestWhatAHostCanHaveRun: each bound by itself, on both of its sides.
func TestWhatAHostCanHaveRun(t *testing.T) {
	b := bounds{threads: 8, joined: noon.Add(-24 * time.Hour), now: noon}
	for _, c := range []struct {
		name, want string
		change     func(u *api.Usage)
	}{
		{"as it is", "", func(*api.Usage) {}},
		{"all threads", "", func(u *api.Usage) { u.Cores = 8 }},
		{"one more", outCores, func(u *api.Usage) { u.Cores = 9 }},
		{"a clock that is ahead", "", func(u *api.Usage) { u.End = noon.Add(early) }},
		{"the future", outFuture, func(u *api.Usage) { u.End = noon.Add(early + 1) }},
		{"a clock that was set back", "", func(u *api.Usage) { u.Start = u.End }},
		{"a clock that was set back far", outTime, func(u *api.Usage) { u.Start = u.End.Add(1) }},
		{"fifty years in no time", outTime, func(u *api.Usage) { u.Start, u.Wall = u.End, mostWall }},
		{"an end before the start", outTime, func(u *api.Usage) { u.Wall, u.Start = 0, u.End.Add(early+1) }},
		{"since the host joined", "", func(u *api.Usage) { u.Start = b.joined.Add(-early) }},
		{"before it joined", outBefore, func(u *api.Usage) { u.Start = b.joined.Add(-early - 1) }},
		{"wall time from before it joined", outBefore, func(u *api.Usage) {
			u.End = b.joined.Add(-time.Minute)
			u.Start, u.Wall = u.End.Add(-50*time.Minute), 3601
		}},
		{"CPU time of all threads", "", func(u *api.Usage) { u.CPU = new(8.0 * (3600 + cpuSlack)) }},
		{"more CPU time", outCPU, func(u *api.Usage) { u.CPU = new(8.0*(3600+cpuSlack) + 1) }},
	} {
		u := aRecord()
		c.change(&u)
		got := ""
		if why := b.outside(u); why != nil {
			if got = why.word; why.text == "" {
				t.Errorf("%s: %s without a sentence", c.name, got)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestBoundsOfAHost: threads that were switched off still count, and those that a host makes up do not.
func TestBoundsOfAHost(t *testing.T) {
	facts := farm.Facts{}
	facts.Topology.Online = farm.NewCPUSet(0, 1, 2, 3)
	for _, c := range []struct {
		threads farm.Threads
		want    int
	}{{farm.Threads{}, 4}, {farm.Threads{First: 4, Most: 4}, 4}, {farm.Threads{First: 4, Most: 8}, 8},
		{farm.Threads{First: 8, Most: 8}, 8}, {farm.Threads{First: 4, Most: 4096}, 8}} {
		h := farm.Host{Enrolled: noon, Facts: facts, Threads: c.threads}
		if b := boundsOf(h, noon); b.threads != c.want || !b.joined.Equal(noon) {
			t.Errorf("%+v: %+v", c.threads, b)
		}
	}
	known := noon.Add(-time.Hour)
	if b := boundsOf(farm.Host{Enrolled: noon, Known: known}, noon); !b.joined.Equal(known) {
		t.Errorf("a host that joined again: %+v", b)
	}
}

// TestStayOf: a record is of the stay of its VM that it lies in.
func TestStayOf(t *testing.T) {
	first := store.Place{Since: noon.Add(-48 * time.Hour), Until: noon.Add(-24 * time.Hour), Owner: "ann", CPUs: 4}
	last := store.Place{Since: noon.Add(-time.Hour), Owner: "ben", CPUs: 8}
	unknown := store.Place{Until: noon, Owner: "eve"}
	for _, c := range []struct {
		name, want string
		stays      []store.Place
		change     func(u *api.Usage)
	}{
		{"never", outPlace, nil, func(*api.Usage) {}},
		{"now", "ben", []store.Place{first, last}, func(*api.Usage) {}},
		{"then", "ann", []store.Place{first, last}, func(u *api.Usage) {
			u.Start, u.End = u.Start.Add(-24*time.Hour), first.Until.Add(early)
		}},
		{"between", outPlace, []store.Place{first, last}, func(u *api.Usage) {
			u.Start, u.End = u.Start.Add(-12*time.Hour), u.End.Add(-12*time.Hour)
		}},
		{"over both", outPlace, []store.Place{first, last}, func(u *api.Usage) { u.Start = first.Since }},
		{"after its end", outPlace, []store.Place{first}, func(u *api.Usage) {
			u.Start, u.End = first.Since, first.Until.Add(early+1)
		}},
		{"before its beginning", outPlace, []store.Place{last}, func(u *api.Usage) {
			u.Start = last.Since.Add(-early - 1)
		}},
		{"wall time from before its beginning", outPlace, []store.Place{last}, func(u *api.Usage) { u.Wall = 7201 }},
		{"too large", outSize, []store.Place{first, last}, func(u *api.Usage) { u.Cores = 9 }},
		{"of unknown size and beginning", "eve", []store.Place{unknown}, func(u *api.Usage) { u.Cores = 64 }},
	} {
		u := aRecord()
		c.change(&u)
		s, why := stayOf(c.stays, u, noon)
		got := s.Owner
		if why != nil {
			got = why.word
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestHourly: hours of a record add up to what it charges, whenever it ended and however short it is.
func TestHourly(t *testing.T) {
	for _, c := range []struct {
		end         time.Time
		wall, cpu   float64
		hours, used float64
	}{
		{noon, 3600, 0, 1, 4 * 3600}, {noon.Add(time.Minute), 3600, 0, 2, 4 * 3600}, {noon, 0, 0, 1, 0},
		{noon, 0, 7, 1, 7}, {noon, 100, 4000, 1, 4000}, {noon, 86400 * 3, 0, 72, 4 * 86400 * 3},
		{time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC), 2, 0, 2, 8},
		{noon.In(time.FixedZone("x", 3600)), 1800, 0, 1, 7200}, {noon.Add(1), 1, 0, 2, 4},
	} {
		u := aRecord()
		u.End, u.Wall, u.CPU = c.end, c.wall, &c.cpu
		n, sum := 0.0, 0.0
		hourly(u, func(day string, hour int, used float64) {
			if at, err := time.Parse(dayLayout, day); err != nil || at.After(c.end) || hour < 0 || hour > 23 {
				t.Errorf("%+v: %s %d", c, day, hour)
			}
			n, sum = n+1, sum+used
		})
		if n != c.hours || math.Abs(sum-c.used) > 1e-6 {
			t.Errorf("%+v: %v hours, %v core seconds", c, n, sum)
		}
	}
}

// TestJobCPU: a guest cannot say that its jobs took what its VM did not have; what it can say counts in its hours.
func TestJobCPU(t *testing.T) {
	for said, want := range map[float64]bool{0: true, 8 * 3600: true, 8*3600 + 1: false, -1: false, math.NaN(): false,
		math.Inf(1): false} {
		u := aRecord()
		u.JobCPU = &said
		if got := jobCPU(u); (got != nil) != want {
			t.Errorf("%v: %v", said, got)
		}
	}
	short, said := aRecord(), 8.0
	short.Wall, short.CPU, short.JobCPU = 0, nil, &said
	if got := jobCPU(short); got == nil || charges(short) != 8 {
		t.Errorf("%v, it charges %v", got, charges(short))
	}
}

// TestFullHost: records of one hour add up to a few times the host, and not to more; an hour that is full keeps no
// other one from being charged.
func TestFullHost(t *testing.T) {
	s := sumsOf("h")
	s.days["2026-10-20"] = &store.Hours{}
	charge := func(u api.Usage) bool {
		why := s.full(u, 8)
		if why == "" {
			s.add(u)
		}
		return why == ""
	}
	n := 0
	for range 100 {
		if charge(aRecord()) {
			n++
		}
	}
	if n != mostFull*8/4 {
		t.Errorf("%d records of 4 cores count on a host of 8 threads", n)
	}
	short := aRecord()
	short.Wall, short.CPU, short.Start = 0, new(1.0), short.End
	if charge(short) {
		t.Error("CPU time of a short record counts in a full hour")
	}
	if short.CPU = nil; !charge(short) {
		t.Error("a record of nothing does not count")
	}
	later := aRecord()
	later.Start, later.End = later.Start.Add(time.Hour), later.End.Add(time.Hour)
	if !charge(later) {
		t.Error("the hour behind a full one is full")
	}
}
