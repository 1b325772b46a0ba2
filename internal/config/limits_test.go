package config

import (
	"testing"

	"github.com/grange-project/grange/internal/policy"
)

func TestLimits(t *testing.T) {
	a, err := ParseAgent(nil, "x")
	if err != nil {
		t.Fatal(err)
	}
	for all, want := range map[uint64]uint64{1: 1, 2: 1, 4: 3, 64: 48, 0: 0} {
		if got := a.Limits.CPUs.Of(all); got != want {
			t.Errorf("%d of %d CPUs, not %d", got, all, want)
		}
	}
	if a.Limits.Memory.Percent != 75 || a.Limits.Disk.Percent != 50 {
		t.Errorf("%+v", a.Limits)
	}
	a, err = ParseAgent([]byte("[limits]\ncpus = \"3\"\nmemory = \"2G\"\ndisk = \"100%\"\n"), "x")
	if err != nil || a.Limits.CPUs.Of(64) != 3 || a.Limits.Memory.Of(1) != 2<<30 ||
		a.Limits.Disk.Of(1<<62+77) != 1<<62+77 {
		t.Errorf("%+v, %v", a.Limits, err)
	}
	for _, text := range []string{`cpus = "0"`, `cpus = "0%"`, `cpus = "101%"`, `cpus = "2G"`, `memory = ""`,
		`disk = "x%"`, `disk = 3`, `gpus = "1"`} {
		if _, err := ParseAgent([]byte("[limits]\n"+text), "x"); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}

// TestExceptions: for each setting the first exception counts that is for the user and says anything of it; what none
// says stays.
func TestExceptions(t *testing.T) {
	a, err := ParseAgent([]byte(`
[limits]
cpus = "8"
[[limits.except]]
users = ["ci", "900"]
memory = "100%"
[[limits.except]]
users = ["c*"]
groups = ["staff"]
cpus = "16"
memory = "1G"
`), "x")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		who    policy.Who
		cpus   uint64
		memory uint64
	}{
		"nobody":          {policy.Who{User: "ann", Groups: []string{"staff"}}, 8, 75},
		"by name":         {policy.Who{User: "ci"}, 8, 100},
		"by number":       {policy.Who{UID: 900}, 8, 100},
		"both":            {policy.Who{User: "ci", Groups: []string{"staff"}}, 16, 100},
		"the second":      {policy.Who{User: "carl", Groups: []string{"x", "staff"}}, 16, 1 << 30},
		"half of it":      {policy.Who{User: "carl", Groups: []string{"x"}}, 8, 75},
		"no names":        {policy.Who{UID: 77, GIDs: []uint32{77}}, 8, 75},
		"nothing matches": {policy.Who{User: "C", Groups: []string{"staff"}}, 8, 75},
	} {
		got := a.Limits.Of(c.who)
		if got.CPUs.Of(64) != c.cpus || got.Memory.Of(100) != c.memory || got.Disk != a.Limits.Disk {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for _, text := range []string{`cpus = "4"`, `users = ["x"]`, "users = [\"[\"]\ncpus = \"4\"",
		"users = [\"\"]\ncpus = \"4\"", "users = [\"x\"]\ncpus = \"0\"",
		"accounts = [\"x\"]\ncpus = \"4\""} {
		if _, err := ParseAgent([]byte("[[limits.except]]\n"+text), "x"); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}
