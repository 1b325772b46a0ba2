package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
page_size = "1G, 2M"
sockets = 1
cores = 4
threads = 2
thread_policy = "isolate"
numa = "2"
[shapes.web]
purpose = "service"
cpu_model = "Haswell-noTSX"
emulator = "isolate"
numa = "none"
cache = "writethrough"
[shapes.plain]
purpose = "compute"
cpu_model = "default"
thread_policy = "prefer"
emulator = "beside"
numa = "auto"
page_size = "0"
cache = "default"
[facts]
hs06 = "357"
`), "agent.toml")
	if err != nil {
		t.Fatal(err)
	}
	if a.ReservedCPUs.String() != "0,16" || a.ReservedMemory != 4*farm.GiB || a.BootTimeout != 90*time.Second ||
		a.Socket == "" {
		t.Errorf("%+v", a)
	}
	want := map[string]farm.Shape{
		"big": {Name: "big", CPUs: 8, Memory: 4 * farm.GiB, Scratch: 100 * farm.GiB,
			Pages: []farm.Bytes{farm.GiB, 2 * farm.MiB}, Network: farm.NetworkNone,
			Guest: farm.GuestTopology{Sockets: 1, Cores: 4, Threads: 2}, Threads: farm.IsolateCores, Cells: 2},
		"web": {Name: "web", CPUs: 2, Memory: 4 * farm.GiB, Pages: []farm.Bytes{farm.GiB, 2 * farm.MiB, 0},
			Network: farm.NetworkNone, Purpose: farm.PurposeService, CPUModel: "Haswell-noTSX",
			Emulator: farm.EmulatorIsolate, Cells: 1, Cache: "writethrough"},
		"plain": {Name: "plain", CPUs: 2, Memory: 4 * farm.GiB, Network: farm.NetworkNone},
	}
	if d := cmp.Diff(want, a.Shapes); d != "" {
		t.Errorf("shapes (-want +got):\n%s", d)
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
		"[shapes.x]\npage_size = \"2M,2M\"":            "2M twice",
		"[shapes.x]\nnuma = \"0\"":                     "NUMA",
		"[shapes.x]\ncpus = 2\nnuma = \"3\"":           "3 NUMA cells for 2 CPUs",
		"[shapes.x]\npurpose = \"fun\"":                "fun",
		"[shapes.x]\ncpu_model = \"<x>\"":              "CPU model",
		"[shapes.x]\nthread_policy = \"all\"":          "thread policy",
		"[shapes.x]\nemulator = \"far\"":               "emulator policy",
		"[shapes.x]\ncache = \"much\"":                 "cache mode",
		"[default_shape]\nnetwork = \"warp\"":          "warp",
	} {
		if _, err := ParseAgent([]byte(text), "agent.toml"); err == nil || !strings.Contains(err.Error(), says) ||
			!strings.HasPrefix(err.Error(), "agent.toml: ") {
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
