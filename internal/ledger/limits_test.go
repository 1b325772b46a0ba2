package ledger

import (
	"cmp"
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

// sumsLedger is one of 32 CPUs, where one user may have 16 of them, 24 GiB, and half of 100 GiB of disk space. What is
// promised of it is in got.
func sumsLedger(got *map[string]farm.Bytes) *Ledger {
	space := func(at string, of func(string) map[string]farm.Bytes) (farm.DiskSpace, error) {
		if at != JobFiles {
			return volumesOf(of(at)), nil
		}
		promised := of(at)
		if *got = maps.Clone(promised); got == nil {
			return farm.DiskSpace{}, nil
		}
		s := farm.DiskSpace{Total: 110 * farm.GiB, Pool: 110 * farm.GiB, Free: 110 * farm.GiB}
		for _, n := range promised {
			s.Short += n - min(n, s.Free)
			s.Free -= min(n, s.Free)
		}
		return s, nil
	}
	l := New(topologytest.CERN2650v2(), numa.Reserve{}, Host{Space: space})
	l.SetLimits(policy.Limits{CPUs: policy.Share{Amount: 16}, Memory: policy.Share{Amount: uint64(24 * farm.GiB)},
		Disk: policy.Share{Percent: 50}}, 10*farm.GiB)
	return l
}

// volumesOf is a thin pool of 40 GiB.
func volumesOf(promised map[string]farm.Bytes) farm.DiskSpace {
	s := farm.DiskSpace{Total: 40 * farm.GiB, Pool: 40 * farm.GiB, Free: 40 * farm.GiB}
	for _, n := range promised {
		s.Short += n - min(n, s.Free)
		s.Free -= min(n, s.Free)
	}
	return s
}

// TestVolumes: what is promised of volumes is theirs, beside files, and counts for its user.
func TestVolumes(t *testing.T) {
	var promised map[string]farm.Bytes
	l := sumsLedger(&promised)
	claim := func(id string, c Charge) error {
		c.Disks, c.UID, c.Limited = "grange-"+id, cmp.Or(c.UID, 1000), true
		l.SetCharge(id, c)
		r := request(1, "0-31")
		r.Memory = farm.GiB
		_, err := l.Claim(t.Context(), id, id, r, true, func(string) {})
		return err
	}
	on := func(size farm.Bytes) map[string]farm.Bytes { return map[string]farm.Bytes{"vg/pool": size} }
	if err := claim("a", Charge{Bytes: 10 * farm.GiB, Volumes: on(30 * farm.GiB)}); err != nil {
		t.Fatal(err)
	}
	l.DiskSpace(JobFiles)
	if s, err := l.DiskSpace("vg/pool"); err != nil || s.Free != 10*farm.GiB || promised["grange-a"] != 10*farm.GiB {
		t.Errorf("%+v, %v; of files %v is promised", s, err, promised)
	}
	if err := claim("b", Charge{UID: 1001, Volumes: on(41 * farm.GiB)}); !farm.IsCode(err, farm.CodeTooBig) ||
		!strings.Contains(err.Error(), "vg/pool") {
		t.Error(err)
	}
	l.Release("b")
	err := claim("b", Charge{UID: 1001, Bytes: farm.GiB, Volumes: on(10*farm.GiB + 1)})
	if !farm.IsCode(err, farm.CodeNoRoom) || !strings.Contains(err.Error(), "vg/pool") {
		t.Error(err)
	}
	l.Release("b")
	if err := claim("b", Charge{Bytes: 11 * farm.GiB}); !farm.IsCode(err, CodeUserLimit) {
		t.Errorf("of 50 GiB a user has 40, volumes too, and gets 11: %v", err)
	}
	l.Release("b")
	if err := claim("b", Charge{Volumes: on(10*farm.GiB + 1)}); !farm.IsCode(err, CodeUserLimit) {
		t.Errorf("the volumes that somebody asks for count as those that they have: %v", err)
	}
	l.Release("b")
	if err := claim("b", Charge{Volumes: on(10 * farm.GiB)}); err != nil {
		t.Error(err)
	}
}

func ofUser(uid uint32, disks farm.Bytes) Charge {
	return Charge{Bytes: disks, UID: uid, Limited: true}
}

func TestSumsOfOneUser(t *testing.T) {
	for name, c := range map[string]struct {
		cpus   int
		memory farm.Bytes
		p      Charge
		want   farm.Code
		kind   farm.Kind
		text   string
	}{
		"within": {8, farm.GiB, ofUser(1, 0), "", "", ""},
		"CPUs beside others": {9, farm.GiB, ofUser(1, 0), CodeUserLimit, farm.NoCapacity,
			"have 8 CPUs, and you may have 16 at once"},
		"CPUs beyond": {17, farm.GiB, ofUser(1, 0), CodeUserLimit, farm.Invalid, "16 CPUs"},
		"memory beside others": {1, 17 * farm.GiB, ofUser(1, 0), CodeUserLimit, farm.NoCapacity,
			"8G of memory"},
		"memory beyond": {1, 25 * farm.GiB, ofUser(1, 0), CodeUserLimit, farm.Invalid,
			"24G of memory"},
		"disks beside others": {1, farm.GiB, ofUser(1, 31*farm.GiB), CodeUserLimit, farm.NoCapacity,
			"20G of disk space"},
		"disks beyond": {1, farm.GiB, ofUser(1, 51*farm.GiB), CodeUserLimit, farm.Invalid,
			"50G of disk space"},
		"another user": {16, farm.GiB, ofUser(2, 50*farm.GiB), "", "", ""},
		"a batch job":  {20, 25 * farm.GiB, Charge{UID: 1}, "", "", ""},
		"disks that nobody could have": {1, farm.GiB, Charge{Bytes: 101 * farm.GiB}, farm.CodeTooBig,
			farm.Invalid, "never"},
		"disks that find no space": {1, farm.GiB, Charge{Bytes: 81 * farm.GiB}, farm.CodeNoRoom,
			farm.NoCapacity, "lack 1G"},
		"CPUs that stay empty count": {8, farm.GiB, ofUser(1, 0), CodeUserLimit, farm.NoCapacity,
			"would take 16"},
	} {
		t.Run(name, func(t *testing.T) {
			var promised map[string]farm.Bytes
			l := sumsLedger(&promised)
			l.SetCharge("a", Charge{Disks: "grange-a", Bytes: 20 * farm.GiB, UID: 1, Limited: true})
			r := request(8, "0-31")
			r.Memory = 8 * farm.GiB
			if _, err := l.Claim(t.Context(), "a", "a", r, true, quiet); err != nil {
				t.Fatal(err)
			}
			c.p.Disks = "grange-b"
			l.SetCharge("b", c.p)
			r = request(c.cpus, "0-31")
			r.Memory = c.memory
			if strings.HasPrefix(name, "CPUs that stay") {
				r.Threads = farm.IsolateCores
			}
			_, err := l.Claim(t.Context(), "b", "b", r, true, quiet)
			if c.want == "" && err != nil || c.want != "" && (!farm.IsCode(err, c.want) || !farm.IsKind(err, c.kind) ||
				!strings.Contains(err.Error(), c.text)) {
				t.Errorf("%v; want %s", err, c.want)
			}
			want := map[string]farm.Bytes{"grange-a": 20 * farm.GiB}
			if err == nil && c.p.Bytes > 0 {
				want["grange-b"] = c.p.Bytes
			}
			if l.DiskSpace(JobFiles); !maps.Equal(promised, want) {
				t.Errorf("promised are %v, not %v", promised, want)
			}
			l.Release("a")
			l.Release("b")
			if l.DiskSpace(JobFiles); len(promised) > 0 || len(l.claims.charges) > 0 {
				t.Errorf("%v is promised after all has ended", promised)
			}
		})
	}
}

// TestNobodyWaitsBehindSums: who has too much already, or finds no space for disks, is passed by others, and is served
// when the time has come.
func TestNobodyWaitsBehindSums(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var promised map[string]farm.Bytes
		l, done := sumsLedger(&promised), make(chan string, 8)
		for _, w := range []struct {
			name string
			cpus int
			p    Charge
		}{
			{"first", 16, Charge{UID: 1, Limited: true, Bytes: 10 * farm.GiB, Disks: "first"}},
			{"greedy", 8, ofUser(1, 0)},
			{"large", 1, Charge{Bytes: 95 * farm.GiB, Disks: "large"}},
			{"other", 8, ofUser(2, 0)},
		} {
			l.SetCharge(w.name, w.p)
			claimed(l, t.Context(), w.name, request(w.cpus, "0-31"), done)
		}
		if a, b := <-done, <-done; a != "first" || b != "other" || len(done) > 0 {
			t.Fatalf("served: %s, %s, and %d more", a, b, len(done))
		}
		l.Release("first")
		synctest.Wait()
		if a, b := <-done, <-done; a+b != "greedylarge" && a+b != "largegreedy" {
			t.Errorf("served then: %s, %s", a, b)
		}
	})
}
