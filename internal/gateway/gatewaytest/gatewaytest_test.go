package gatewaytest

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/gateway/features"
)

// TestJudge: a declaration is held in both directions.
func TestJudge(t *testing.T) {
	g := features.Gateway{Lacks: map[string]features.Lack{"locks": {Why: "it has none", Seen: "both have"}, "rights": {}},
		RefusesRoot: "not of root"}
	for _, c := range []struct {
		feature string
		failed  []string
		want    string
	}{
		{feature: "mmap"},
		{feature: "mmap", failed: []string{"broken"}, want: "broken"},
		{feature: "locks", failed: []string{"both have the lock"}},
		{feature: "locks", failed: []string{"both have the lock", "EIO"}, want: "not as declared (both have): EIO"},
		{feature: "locks", want: "it is kept, and declared as lacking: it has none"},
		{feature: "rights", failed: []string{"broken"}, want: "no gateway may lack this"},
		{feature: "caller-root", failed: []string{"directories not of root"}},
		{feature: "caller-root", failed: []string{"broken"}, want: "not as declared (not of root): broken"},
	} {
		if got := strings.Join(Judge(g, c.feature, c.failed), "; "); got != c.want {
			t.Errorf("%s, %q: %q, not %q", c.feature, c.failed, got, c.want)
		}
	}
}

// TestFeatures: each that is listed has a test, and each test is of one that is listed.
func TestFeatures(t *testing.T) {
	list := all()
	if len(list) != len(tests) {
		t.Errorf("%d features, %d tests", len(list), len(tests))
	}
	for _, f := range list {
		if f.test == nil {
			t.Errorf("%s has no test", f.Name)
		}
	}
}

// TestSessions: each feature that VMs are tried for is in one session.
func TestSessions(t *testing.T) {
	seen := map[string]int{}
	for _, s := range Sessions() {
		for _, name := range s.Features {
			seen[name]++
			how := tests[name]
			if s.ReadOnly != how.readOnly || s.VMs != max(1, how.vms) || (s.Caller.UID == 0) != how.asRoot {
				t.Errorf("%s is in %+v", name, s)
			}
		}
	}
	for name, how := range tests {
		if want := map[bool]int{false: 1}[how.oneHost]; seen[name] != want {
			t.Errorf("%s is in %d sessions", name, seen[name])
		}
	}
}

// TestHalves: the same test runs at two places, which do each their steps in turn; what fails at one ends it at both.
func TestHalves(t *testing.T) {
	var order []string
	log := func(what string) func() { return func() { order = append(order, what) } }
	test := func(v *vm) {
		v.onHost(log("host"))
		v.onVM(log("VM"))
		v.onHost(log("host again"))
		v.onVM(func() { v.errorf("one fault") })
		v.onVM(func() { v.fatalf("the last fault") })
		v.onHost(log("never"))
	}
	tests["halves"] = how{test: test}
	defer delete(tests, "halves")
	in, toVM := io.Pipe()
	fromVM, out := io.Pipe()
	ended := make(chan error)
	go func() { ended <- Half(in, out) }()
	dir := filepath.Join(t.TempDir(), "dir")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := Session{Caller: Identity{UID: uint32(unix.Getuid()), GID: uint32(unix.Getgid())},
		Features: []string{"halves", "halves", "none"}}
	vms := []VM{{Dir: "/nowhere", In: toVM, Out: fromVM, Kill: func() { toVM.Close() }}}
	var results []string
	s.Run(dir, vms, time.Minute, func(name string, failed []string) {
		results = append(results, name+": "+strings.Join(failed, ", "))
	})
	toVM.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	const fault = "halves: one fault, the last fault"
	want := []string{fault, fault, `none: there is no feature "none", there is no feature "none"`}
	if strings.Join(results, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q", results)
	}
	if got := strings.Join(order, ", "); got != "host, VM, host again, host, VM, host again" {
		t.Error(got)
	}
}

// TestLost: a VM that ends fails the feature, and those that follow, and nothing hangs.
func TestLost(t *testing.T) {
	tests["lost"] = how{test: func(v *vm) { v.onVM(func() {}) }}
	defer delete(tests, "lost")
	in, toVM := io.Pipe()
	fromVM, out := io.Pipe()
	go func() {
		io.ReadFull(in, make([]byte, 1))
		in.Close()
		out.Close()
	}()
	s := Session{Caller: Identity{UID: uint32(unix.Getuid()), GID: uint32(unix.Getgid())},
		Features: []string{"lost", "lost"}}
	var failed []string
	s.Run(t.TempDir(), []VM{{Dir: "/nowhere", In: toVM, Out: fromVM, Kill: func() {}}}, time.Minute,
		func(_ string, what []string) { failed = append(failed, strings.Join(what, ", ")) })
	if len(failed) != 2 || !strings.Contains(failed[0], "is lost") || !strings.Contains(failed[1], "is lost") {
		t.Errorf("%q", failed)
	}
}
