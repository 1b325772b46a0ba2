package config

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
)

func TestParseBatchAndPolicy(t *testing.T) {
	a, err := ParseAgent([]byte(`
[batch]
binds = ["/home", "/cvmfs:ro", "/srv/in:/in:ro"]
requeues = 5
wait_timeout = "2m"
[shapes.wide]
cpus = 8
[[policy]]
name = "atlas"
users = ["atl*"]
groups = ["atlas"]
accounts = ["atlasprd"]
queues = ["long"]
systems = ["slurm", "none"]
image = "atlas-el9"
images = ["atlas-*"]
shape = "wide"
shapes = ["*"]
network = "user"
networks = ["*"]
binds = ["/cvmfs:ro"]
mounts = ["/home"]
one_filesystem = true
max_cpus = 16
max_memory = "64G"
max_scratch = "0"
[[policy]]
deny = "closed"
`), "agent.toml")
	if err != nil {
		t.Fatal(err)
	}
	zero, yes := farm.Bytes(0), true
	want := []policy.Rule{
		{Name: "atlas", Users: []string{"atl*"}, Groups: []string{"atlas"}, Accounts: []string{"atlasprd"},
			Queues: []string{"long"}, Systems: []string{"slurm", "none"}, Image: "atlas-el9",
			Images: []string{"atlas-*"}, Shape: "wide", Shapes: []string{"*"}, Network: "user", Networks: []string{"*"},
			Binds: []string{"/cvmfs:ro"}, Mounts: []string{"/home"}, MaxCPUs: 16, MaxMemory: 64 * farm.GiB,
			MaxScratch: &zero, OneFilesystem: &yes},
		{Name: "policy 2", Deny: "closed"},
	}
	if d := cmp.Diff(want, a.Policy); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff(Batch{Binds: []string{"/home", "/cvmfs:ro", "/srv/in:/in:ro"}, Requeues: 5,
		WaitTimeout: 2 * time.Minute}, a.Batch); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if a, err := ParseAgent(nil, ""); err != nil || a.Batch.Requeues != 3 || a.Batch.WaitTimeout != 30*time.Second ||
		a.Policy != nil {
		t.Errorf("defaults: %+v, %v", a.Batch, err)
	}
}

func TestParseBatchAndPolicyRefuse(t *testing.T) {
	for text, says := range map[string]string{
		"[batch]\nrequeue = 3":                               `unknown key "batch.requeue"`,
		"[batch]\nrequeues = -1":                             "batch.requeues: -1",
		"[batch]\nwait_timeout = \"10\"":                     "batch.wait_timeout: time: missing unit",
		"[batch]\nwait_timeout = \"0s\"":                     "batch.wait_timeout: 0s is not between",
		"[batch]\nbinds = [\"home\"]":                        "absolute path",
		"[batch]\nbinds = [\"/\"]":                           "below /",
		"[batch]\nbinds = [\"/a:b\"]":                        "SRC[:DST][:ro]",
		"[batch]\nbinds = [\"/a:/b:rx\"]":                    "SRC[:DST][:ro]",
		"[[policy]]\nuser = [\"x\"]":                         `unknown key "policy.user"`,
		"[[policy]]\nusers = [\"[\"]":                        `rule "policy 1": invalid pattern "["`,
		"[[policy]]\nname = \"a\"\n[[policy]]\nname = \"a\"": `rule "a": there is another rule`,
		"[[policy]]\nshape = \"big\"":                        `shape "big" is not below [shapes]`,
		"[[policy]]\nsystems = [\"moab\"]":                   `no batch system "moab"`,
		"[[policy]]\nnetwork = \"warp\"":                     `network "warp"`,
		"[[policy]]\nmax_memory = \"lots\"":                  "not a size",
		"[[policy]]\nmax_memory = \"1M\"":                    "max_memory",
		"[[policy]]\nmax_scratch = \"x\"":                    "not a size",
		"[[policy]]\nbinds = [\"x\"]":                        "binds",
		"[[policy]]\nmounts = [\"x\"]":                       "absolute path",
		"[[policy]]\nmax_cpus = -1":                          "max_cpus",
	} {
		if _, err := ParseAgent([]byte(text), "agent.toml"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want an error that says %q", text, err, says)
		}
	}
}

// TestRenamedKeys: the old name of a key holds for one more release, and is noticed.
func TestRenamedKeys(t *testing.T) {
	a, err := ParseAgent([]byte("[batch]\npatience = \"2m\"\n"), "")
	if err != nil || a.Batch.WaitTimeout != 2*time.Minute || len(a.Renamed) != 1 ||
		!strings.Contains(a.Renamed[0], "batch.wait_timeout") {
		t.Errorf("%v, %v, %v", a.Batch, a.Renamed, err)
	}
}

func TestNodeName(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	short, _, _ := strings.Cut(host, ".")
	for _, c := range []struct {
		batch Batch
		want  string
	}{{Batch{}, ""}, {Batch{System: "slurm"}, short}, {Batch{Node: "rack7-03"}, "rack7-03"},
		{Batch{System: "slurm", Node: "rack7-03"}, "rack7-03"}} {
		if got, err := c.batch.NodeName(); err != nil || got != c.want {
			t.Errorf("%+v: %q, %v", c.batch, got, err)
		}
	}
}
