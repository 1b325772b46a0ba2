package config

import (
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

func TestParseAgent(t *testing.T) {
	a, err := ParseAgent([]byte(`
reserved_cpus = "0,16"
reserved_memory = "4G"
boot_timeout = "90s"
[default_shape]
cpus = 2
memory = "4G"
[shapes.big]
cpus = 8
scratch = "100G"
page_size = "1G"
sockets = 1
cores = 4
threads = 2
[facts]
hs06 = "357"
`), "agent.toml")
	if err != nil {
		t.Fatal(err)
	}
	if a.ReservedCPUs.String() != "0,16" || a.ReservedMemory != 4*farm.GiB || a.BootTimeout != 90*time.Second || a.Socket == "" {
		t.Errorf("%+v", a)
	}
	want := farm.Shape{Name: "big", CPUs: 8, Memory: 4 * farm.GiB, Scratch: 100 * farm.GiB, PageSize: farm.GiB, Network: farm.NetworkNone,
		Guest: farm.GuestTopology{Sockets: 1, Cores: 4, Threads: 2}}
	if a.Shapes["big"] != want {
		t.Errorf("shape big is %+v, want %+v", a.Shapes["big"], want)
	}
}

// TestParseAgentRefuses: each broken file is refused whole, and the error says where.
func TestParseAgentRefuses(t *testing.T) {
	for text, says := range map[string]string{
		"nosuch = 1":          `line 1: unknown key "nosuch"`,
		"[shapes.x]\ncpu = 3": `unknown key "shapes.x.cpu"`,
		"socket = ":           "line 1",
		`socket = "relative"`: "not an absolute path",
		`run_dir = "/` + strings.Repeat("x", 80) + `"`: "run_dir",
		`reserved_cpus = "0-"`:                         "not a CPU list",
		`reserved_memory = "lots"`:                     "not a size",
		`boot_timeout = "soon"`:                        "soon",
		`accelerator = "warp"`:                         "warp",
		"attempts = 0":                                 "attempts",
		"memory_overcommit = 1000.0":                   "memory_overcommit",
		"[shapes.x]\ncpus = -1":                        "-1 CPUs",
		"[shapes.x]\npage_size = \"4M\"":               "pages of 4M",
		"[default_shape]\nnetwork = \"warp\"":          "warp",
	} {
		if _, err := ParseAgent([]byte(text), "agent.toml"); err == nil || !strings.Contains(err.Error(), says) || !strings.HasPrefix(err.Error(), "agent.toml: ") {
			t.Errorf("%q: %v, want an error that says %q", text, err, says)
		}
	}
}

func FuzzParseAgent(f *testing.F) {
	f.Add([]byte("attempts = 3"))
	f.Add([]byte("[shapes.a]\nmemory = \"1e300G\""))
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := ParseAgent(text, "x")
		if err == nil && a.DefaultShape.Validate() != nil {
			t.Errorf("an invalid default shape passed: %+v", a.DefaultShape)
		}
	})
}
