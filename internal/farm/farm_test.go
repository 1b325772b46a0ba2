package farm

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestIsID(t *testing.T) {
	for text, want := range map[string]bool{"0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d": true, "": false,
		"0A1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d": false, "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4": false,
		"0a1b2c3d4e5f-4a6b-8c7d-9e0f1a2b3c4d-": false, "../../../../../../../../../etc/passw": false,
		"0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d\n": false, "------------------------------------": false,
		"0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3cg0": false, "-a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d": false} {
		if IsID(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

func TestRounded(t *testing.T) {
	for b, want := range map[Bytes]string{0: "0", 1000: "1000", 24684096 * KiB: "24G", 9*GiB + 700*KiB: "9217M",
		10*GiB + 1: "10G", 2 * GiB: "2G", 1536 * MiB: "1536M", 12*TiB + 600*GiB: "13T"} {
		if got := b.Rounded().String(); got != want {
			t.Errorf("%d: %s, not %s", uint64(b), got, want)
		}
	}
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]Bytes{"0": 0, "1000": 1000, "512M": 512 * MiB, "2G": 2 * GiB, "2GiB": 2 * GiB,
		"2gb": 2 * GiB, "1.5T": 1536 * GiB, " 4K ": 4 * KiB} {
		if got, err := ParseBytes(text); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "G", "-1", "1X", "1e30T", "nan", "inf", "1 2"} {
		if got, err := ParseBytes(text); !isInvalid(err) {
			t.Errorf("%q: %v, %v; want an error", text, got, err)
		}
	}
}

func TestBytesString(t *testing.T) {
	for b, want := range map[Bytes]string{0: "0", 1000: "1000", 2 * GiB: "2G", 1536 * MiB: "1536M", 3 * TiB: "3T"} {
		if got := b.String(); got != want {
			t.Errorf("%d: %s, want %s", uint64(b), got, want)
		}
		if back, err := ParseBytes(b.String()); err != nil || back != b {
			t.Errorf("%v does not come back: %v, %v", b, back, err)
		}
	}
}

func isInvalid(err error) bool {
	e := new(Error)
	return errors.As(err, &e) && e.Kind == Invalid && e.Hint != ""
}

func FuzzParseCPUSet(f *testing.F) {
	for _, s := range []string{"", "0", "0-3,8", "3,1,2", "0-", "-1", "5-2", "0-4294967295", "a", "1,,2", " 0-1\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseCPUSet(text)
		if err != nil {
			if !isInvalid(err) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		back, err := ParseCPUSet(s.String())
		if err != nil || !back.Equal(s) {
			t.Fatalf("%q reads as %v, which reads as %v, %v", text, s, back, err)
		}
	})
}

func TestCPUSet(t *testing.T) {
	a, b := NewCPUSet(3, 1, 2, 2, 8), NewCPUSet(2, 3, 9)
	for name, c := range map[string]struct{ got, want CPUSet }{
		"or": {a.Or(b), NewCPUSet(1, 2, 3, 8, 9)}, "and": {a.And(b), NewCPUSet(2, 3)},
		"minus": {a.Minus(b), NewCPUSet(1, 8)},
	} {
		if !c.got.Equal(c.want) {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
	if c := a.Common(b); c != 2 {
		t.Errorf("%d in common, want 2", c)
	}
	if s := NewCPUSet(-1, 1<<40, 8191, 0).String(); s != "0,8191" {
		t.Errorf("%q, want only what a CPU can be", s)
	}
	for i, s := range EachCPU([]int{200, -1, 0, 1 << 40}) {
		if want := []string{"200", "", "0", ""}[i]; s.String() != want {
			t.Errorf("set %d is %q, want %q", i, s, want)
		}
	}
	if !NewCPUSet(1, 100).Minus(NewCPUSet(100)).Equal(NewCPUSet(1)) || !NewCPUSet(100).And(NewCPUSet(1)).Empty() ||
		!Union(a, b, CPUSet{}).Equal(a.Or(b)) {
		t.Error("sets with the same CPUs differ")
	}
	if a.String() != "1-3,8" || !a.Has(8) || a.Has(4) || a.Len() != 4 {
		t.Errorf("%v", a)
	}
}

// TestCPUSetOfHosts: a list that another machine sends takes no more than its set, and an error quotes little of it.
func TestCPUSetOfHosts(t *testing.T) {
	overlapping := strings.Repeat("0-8191,", mostListed/7)
	taken := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if s, err := ParseCPUSet(overlapping); err != nil || s.Len() != 8192 {
				b.Fatal(s, err)
			}
		}
	})
	if n := taken.AllocedBytesPerOp(); n > 1<<16 {
		t.Errorf("%d bytes are allocated", n)
	}
	for name, text := range map[string]string{"a long list": overlapping + overlapping,
		"a long word": strings.Repeat("x", 1000), "escapes": "\x1b[2J" + strings.Repeat("\n", 1000)} {
		if _, err := ParseCPUSet(text); err == nil || len(err.Error()) > 300 || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: %v", name, err)
		}
	}
	odd := make([]int, 0, 4096)
	for id := 1; id < 8192; id += 2 {
		odd = append(odd, id)
	}
	all := NewCPUSet(odd...)
	if s, err := ParseCPUSet(all.String()); err != nil || !s.Equal(all) {
		t.Error(err)
	}
}

// TestCPUSetLaws holds the sets to what sets of numbers in a map do.
func TestCPUSetLaws(t *testing.T) {
	for seed := range 500 {
		r := rand.New(rand.NewPCG(uint64(seed), 0))
		var a, b []int
		in := [2]map[int]bool{{}, {}}
		for range r.IntN(40) {
			x, y := r.IntN(200), r.IntN(130)
			a, b, in[0][x], in[1][y] = append(a, x), append(b, y), true, true
		}
		s, o := NewCPUSet(a...), NewCPUSet(b...)
		or, and, minus := s.Or(o), s.And(o), s.Minus(o)
		both := 0
		for cpu := -1; cpu < 210; cpu++ {
			x, y := in[0][cpu], in[1][cpu]
			if s.Has(cpu) != x || or.Has(cpu) != (x || y) || and.Has(cpu) != (x && y) || minus.Has(cpu) != (x && !y) {
				t.Fatalf("seed %d: CPU %d of %v and %v", seed, cpu, s, o)
			}
			if x && y {
				both++
			}
		}
		if s.Common(o) != both || and.Len() != both || len(or.List()) != or.Len() || !slices.IsSorted(or.List()) ||
			!minus.Or(and).Equal(s) {
			t.Fatalf("seed %d: %v and %v", seed, s, o)
		}
	}
	if got := CPURange(3, 70).String() + " " + CPURange(5, 5).String() + CPURange(-2, 1).String() + " " + CPURange(8190,
		1<<40).String(); got != "3-69 0 8190-8191" {
		t.Errorf("ranges are %s", got)
	}
}

func TestShapeValidate(t *testing.T) {
	good := Shape{CPUs: 1, Memory: GiB, Network: NetworkNone}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Shape){
		"no CPUs": func(s *Shape) { s.CPUs = 0 }, "too many CPUs": func(s *Shape) { s.CPUs = MaxCPUs + 1 },
		"too little memory": func(s *Shape) { s.Memory = MiB }, "odd memory": func(s *Shape) { s.Memory += 1 },
		"tiny scratch": func(s *Shape) { s.Scratch = KiB }, "odd pages": func(s *Shape) { s.Pages = []Bytes{4 * MiB} },
		"no network": func(s *Shape) { s.Network = "" },
	} {
		s := good
		spoil(&s)
		if err := s.Validate(); !isInvalid(err) {
			t.Errorf("%s: %v, want an error with a hint", name, err)
		}
	}
}
