package agent

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/grange-project/grange/internal/batch/program"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/disk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology/topologytest"
	"github.com/grange-project/grange/internal/vmimage"
)

// sumsLedger is one of 32 CPUs, where one user may have 16 of them, 24 GiB, and half of 100 GiB of disk space. What is
// promised of it is in got.
func sumsLedger(got *map[string]farm.Bytes) *ledger {
	l := newLedger(topologytest.CERN2650v2(), numa.Reserve{})
	l.disks = func(promised map[string]farm.Bytes) (disk.Space, error) {
		if *got = maps.Clone(promised); got == nil {
			return disk.Space{}, nil
		}
		s := disk.Space{Total: 110 * farm.GiB, Pool: 110 * farm.GiB, Free: 110 * farm.GiB}
		for _, n := range promised {
			s.Short += n - min(n, s.Free)
			s.Free -= min(n, s.Free)
		}
		return s, nil
	}
	l.setLimits(config.Limits{CPUs: config.Share{Amount: 16}, Memory: config.Share{Amount: uint64(24 * farm.GiB)},
		Disk: config.Share{Percent: 50}}, 10*farm.GiB)
	return l
}

func ofUser(uid uint32, disks farm.Bytes) part { return part{bytes: disks, owner: uid, sums: true} }

func TestSumsOfOneUser(t *testing.T) {
	for name, c := range map[string]struct {
		cpus   int
		memory farm.Bytes
		p      part
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
		"a batch job":  {20, 25 * farm.GiB, part{owner: 1}, "", "", ""},
		"disks that nobody could have": {1, farm.GiB, part{bytes: 101 * farm.GiB}, farm.CodeTooBig,
			farm.Invalid, "never"},
		"disks that find no space": {1, farm.GiB, part{bytes: 81 * farm.GiB}, farm.CodeNoRoom,
			farm.NoCapacity, "lack 1G"},
		"CPUs that stay empty count": {8, farm.GiB, ofUser(1, 0), CodeUserLimit, farm.NoCapacity,
			"would take 16"},
	} {
		t.Run(name, func(t *testing.T) {
			var promised map[string]farm.Bytes
			l := sumsLedger(&promised)
			l.takes("a", part{disks: "grange-a", bytes: 20 * farm.GiB, owner: 1, sums: true})
			r := request(8, "0-31")
			r.Memory = 8 * farm.GiB
			if _, err := l.claim(t.Context(), "a", "a", r, true, quiet); err != nil {
				t.Fatal(err)
			}
			c.p.disks = "grange-b"
			l.takes("b", c.p)
			r = request(c.cpus, "0-31")
			r.Memory = c.memory
			if strings.HasPrefix(name, "CPUs that stay") {
				r.Threads = farm.IsolateCores
			}
			_, err := l.claim(t.Context(), "b", "b", r, true, quiet)
			if c.want == "" && err != nil || c.want != "" && (!farm.IsCode(err, c.want) || !farm.IsKind(err, c.kind) ||
				!strings.Contains(err.Error(), c.text)) {
				t.Errorf("%v; want %s", err, c.want)
			}
			want := map[string]farm.Bytes{"grange-a": 20 * farm.GiB}
			if err == nil && c.p.bytes > 0 {
				want["grange-b"] = c.p.bytes
			}
			if l.diskSpace(); !maps.Equal(promised, want) {
				t.Errorf("promised are %v, not %v", promised, want)
			}
			l.release("a")
			l.release("b")
			if l.diskSpace(); len(promised) > 0 || len(l.parts) > 0 {
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
			p    part
		}{
			{"first", 16, part{owner: 1, sums: true, bytes: 10 * farm.GiB, disks: "first"}},
			{"greedy", 8, ofUser(1, 0)},
			{"large", 1, part{bytes: 95 * farm.GiB, disks: "large"}},
			{"other", 8, ofUser(2, 0)},
		} {
			l.takes(w.name, w.p)
			claimed(l, t.Context(), w.name, request(w.cpus, "0-31"), done)
		}
		if a, b := <-done, <-done; a != "first" || b != "other" || len(done) > 0 {
			t.Fatalf("served: %s, %s, and %d more", a, b, len(done))
		}
		l.release("first")
		synctest.Wait()
		if a, b := <-done, <-done; a+b != "greedylarge" && a+b != "largegreedy" {
			t.Errorf("served then: %s, %s", a, b)
		}
	})
}

func TestDiskNeed(t *testing.T) {
	full := vmimage.Image{Kind: vmimage.Disk, VirtualSize: 10 * farm.GiB}
	for _, c := range []struct {
		image                  vmimage.Image
		scratch, overlay, want farm.Bytes
	}{
		{vmimage.Image{Kind: vmimage.Kernel}, 0, farm.GiB, 0},
		{vmimage.Image{Kind: vmimage.Kernel}, farm.GiB, 0, farm.GiB},
		{full, farm.GiB, 0, farm.GiB + disk.OverlayBound(10*farm.GiB)},
		{full, farm.GiB, 2 * farm.GiB, 3 * farm.GiB},
		{full, 0, 20 * farm.GiB, disk.OverlayBound(10 * farm.GiB)},
	} {
		if got := diskNeed(c.image, c.scratch, c.overlay); got != c.want {
			t.Errorf("%v + %v: %v, not %v", c.scratch, c.overlay, got, c.want)
		}
	}
}

// TestExceptedUser may hold more than others by an exception that names it, unless the name service is down.
func TestExceptedUser(t *testing.T) {
	down := func(context.Context, program.Call) ([]byte, error) { return nil, errors.New("no answer") }
	c, err := config.ParseAgent([]byte(
		"[limits]\ncpus = \"16\"\n[[limits.except]]\nusers = [\"dora\"]\ncpus = \"100%\"\n"), "test")
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		run  program.Run
		uid  uint32
		want farm.Code
	}{
		"excepted":     {ldap, 70001, ""},
		"another":      {ldap, 70002, CodeUserLimit},
		"nobody knows": {down, 70001, CodeUserLimit},
	} {
		t.Run(name, func(t *testing.T) {
			a := &Agent{ctx: t.Context(), names: names.New(x.run), log: slog.New(slog.DiscardHandler)}
			var promised map[string]farm.Bytes
			l := sumsLedger(&promised)
			l.setLimits(c.Limits, 0)
			p := ofUser(x.uid, 0)
			p.who = a.excepted(Caller{UID: x.uid, GID: 7000})
			l.takes("a", p)
			if _, err := l.claim(t.Context(), "a", "a", request(20, "0-31"), true, quiet); x.want == "" && err != nil ||
				x.want != "" && !farm.IsCode(err, x.want) {
				t.Errorf("%v; want %q", err, x.want)
			}
		})
	}
}
