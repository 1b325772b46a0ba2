package farmfile

import (
	"errors"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
)

const farmText = `
[settings]
boot_timeout = "4m"
default_image = "el9"
facts = { HS06 = "357" }

[maxima]
cpus = 64
memory = "512G"
threads = 2
cpu_models = ["EPYC*"]

[cells.geneva-1]
default = true
open = false
reason = "upgrade"
packing = "spread"
keep_whole = 2
overcommit = 1.5
limits = { vms = 400, memory = "4T" }
per_host = 40

[cells.batch]
broker = "slurm"
batch = "partition=vm"
projects = ["atlas"]
services = true
labels = { room = "513" }

[projects.atlas]
account = "atlasprd"
quota = { vms = 100, cpus = 400, memory = "800G", scratch = "10T" }
shapes = ["small"]
networks = ["lan"]
images = ["el9*"]
max_age = "30d"

[projects.cms]

[shapes.small]
cpus = 2
memory = "4G"
display = true
max_sockets = 1

[shapes.wide]
cpus = 16
memory = "64G"
scratch = "100G"
properties = { "hw:cpu_thread_policy" = "isolate", "hw:mem_page_size" = "large", "hw:numa_nodes" = "2", "hw:cpu_max_sockets" = "2" }

[networks.lan]
bridge = "br0"
vlan = 12
addresses = ["10.0.0.20-10.0.0.80/24"]
gateway = "10.0.0.1"
dns = ["10.0.0.2"]
domain = "example.org"
names = ["vm-1", "vm-2"]

[networks.over]
vxlan = 7001

[networks.tagged]
vlan = 120

[groups.atlas.replicas]
affinity = "anti-affinity"

[users.ann]
subjects = ["CN=Ann,O=Grid,C=CH"]

[[grants]]
user = "ann"
role = "member"
project = "atlas"

[[grants]]
user = "ann"
role = "operator"
cell = "batch"
`

func TestParseFarm(t *testing.T) {
	shut := false
	want := farm.Farm{
		Settings: &farm.Settings{BootTimeout: 4 * time.Minute, DefaultImage: "el9",
			Facts: map[string]string{"HS06": "357"}},
		Maxima: &farm.Maxima{CPUs: 64, Memory: 512 * farm.GiB, Guest: farm.GuestTopology{Threads: 2},
			CPUModels: []string{"EPYC*"}},
		Cells: []farm.FarmCell{
			{Cell: farm.Cell{Name: "batch", Broker: "slurm", Batch: "partition=vm", Projects: []string{"atlas"},
				Packing: farm.Pack, Overcommit: 1, Services: true, Labels: map[string]string{"room": "513"}}},
			{Cell: farm.Cell{Name: "geneva-1", Broker: farm.BrokerGrange, Default: true, Closed: true,
				Reason: "upgrade", Packing: farm.Spread, KeepWhole: 2, Overcommit: 1.5,
				Limits: farm.Quota{VMs: 400, Memory: 4 * farm.TiB}, PerHost: 40}, Open: &shut},
		},
		Projects: []farm.Project{
			{Name: "atlas", Account: "atlasprd",
				Quota:  farm.Quota{VMs: 100, CPUs: 400, Memory: 800 * farm.GiB, Scratch: 10 * farm.TiB},
				Shapes: []string{"small"}, Networks: []string{"lan"}, Images: []string{"el9*"},
				MaxAge: 720 * time.Hour},
			{Name: "cms"},
		},
		Shapes: []farm.Shape{
			{Name: "small", CPUs: 2, Memory: 4 * farm.GiB, Network: farm.NetworkNone,
				MaxGuest: farm.GuestTopology{Sockets: 1}, Display: true},
			{Name: "wide", CPUs: 16, Memory: 64 * farm.GiB, Scratch: 100 * farm.GiB, Network: farm.NetworkNone,
				Threads: farm.IsolateCores, Cells: 2, Pages: []farm.Bytes{farm.GiB, 2 * farm.MiB},
				Guest: farm.GuestTopology{Sockets: 1, Cores: 16, Threads: 1}, MaxGuest: farm.GuestTopology{Sockets: 2}},
		},
		Networks: []farm.FleetNetwork{{Name: "lan", Bridge: "br0", VLAN: 12,
			Addresses: []farm.AddressPool{{First: netip.MustParseAddr("10.0.0.20"),
				Last: netip.MustParseAddr("10.0.0.80"), Bits: 24}}, Gateway: "10.0.0.1", DNS: []string{"10.0.0.2"},
			Domain: "example.org", Names: []string{"vm-1", "vm-2"}}, {Name: "over", VXLAN: 7001},
			{Name: "tagged", VLAN: 120}},
		Groups: []farm.ServerGroup{{Project: "atlas", Name: "replicas", Affinity: farm.Apart}},
		Users:  []farm.User{{Name: "ann", Subjects: []string{"CN=Ann,O=Grid,C=CH"}}},
		Grants: []farm.Grant{{User: "ann", Role: farm.RoleMember, Project: "atlas"},
			{User: "ann", Role: farm.RoleOperator, Cell: "batch"}},
	}
	got, err := Parse([]byte(farmText), "farm.toml")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, cmp.Comparer(farm.AddressPool.Equal)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	again(t, want)
}

// What a file does not mention it says nothing of; an empty table says that there is none.
func TestParseFarmNilAndEmpty(t *testing.T) {
	got, err := Parse([]byte("grants = []\n[cells]\n"), "farm.toml")
	if d := cmp.Diff(farm.Farm{Cells: []farm.FarmCell{}, Grants: []farm.Grant{}}, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

func TestParseFarmRefuses(t *testing.T) {
	for text, says := range map[string]string{
		"[cells.a]\nopne = true":                                      `line 2: unknown key "cells.a.opne"`,
		"[cels.a]":                                                    "line 1: unknown key",
		"[cells.a]\nbroker = 3":                                       "line 2, column",
		"[cells.b]\n\n[cells.\"a b\"]":                                `line 3: no cell can be called "a b"`,
		"[cells.a]\nbroker = \"no va\"":                               `line 1: no broker can be called "no va"`,
		"[cells.a]\nprojects = [\"p\", \"p\"]":                        "project p twice",
		"[cells.a]\nreason = \"x\"":                                   "goes with open = false",
		"[cells.a]\novercommit = 0.5":                                 "overcommit of 0.5",
		"[cells.a]\nlimits = { memory = \"much\" }":                   "limits: memory",
		"[cells.a]\nlimits = { vms = -1 }":                            "below 0",
		"[projects.p]\nmax_age = \"1x\"":                              "max_age",
		"[projects.p]\nmax_age = \"5s\"":                              "less than a minute",
		"[projects.p]\nimages = [\"[\"]":                              "invalid pattern",
		"[shapes.s]\ncpus = 4\nsockets = 3":                           "that is not 4 CPUs",
		"[shapes.s]\ncpus = 4\nsockets = 4\nmax_sockets = 2":          "shape s does not allow 4 sockets",
		"[shapes.s]\nmemory = \"1M\"":                                 "shape s: no VM can have 1M of memory",
		"[shapes.s]\nproperties = { \"hw:cpu_polici\" = \"x\" }":      "no property is called hw:cpu_polici",
		"[shapes.s]\nproperties = { \"hw:cpu_policy\" = \"shared\" }": "CPUs of their own",
		"[shapes.s]\nproperties = { \"trait:X\" = \"required\" }":     "property trait:X does not say how a VM is made",
		"[networks.n]\nbridge = \"a/b\"":                              "no bridge",
		"[networks.n]\nbridge = \"br0\"\nvlan = 4095":                 "no VLAN",
		"[networks.n]\nvxlan = 16777216":                              "no VXLAN network",
		"[networks.n]\nvlan = 12\nvxlan = 7001":                       "network of its own",
		"[networks.n]\ndomain = \"example.org\"":                      "no `bridge`, no `vlan` and no `vxlan`",
		"[networks.n]\nbridge = \"br0\"\naddresses = [\"10.0.0.1\"]":  "network n: addresses",
		"[networks.n]\nbridge = \"br0\"\naddresses = [\"10.0.0.2-10.0.0.9/24\", \"10.0.0.9-10.0.0.12/24\"]": "overlap",
		"[networks.n]\nbridge = \"br0\"\naddresses = [\"10.0.0.2-10.0.0.9/24\"]\ngateway = \"10.0.1.1\"":    "is not in 10.0.0.0/24",
		"[networks.n]\nbridge = \"br0\"\naddresses = [\"10.0.0.2-10.0.0.9/24\"]\ngateway = \"10.0.0.5\"":    "among the addresses",
		"[groups.p.g]\naffinity = \"near\"": `line 1: group p/g: no rule is called "near"`,
		"[users.ann]\nsubjects = [\"Ann\"]": "user ann: no " +
			"subject of a certificate",
		"[[grants]]\nuser = \"a\"\nrole = \"admin\"\n[[grants]]\nuser = \"a\"\nrole = \"boss\"": `line 4: grant of a: no role is called "boss"`,
		"[[grants]]\nuser = \"a\"\nrole = \"member\"\ncell = \"c\"": "members are of " +
			"projects",
		"[[grants]]\nuser = \"a\"\nrole = \"admin\"\ncell = \"c\"\nproject = \"p\"": "not in both",
		"[settings]\nboot_timeout = \"2h\"": "line 1: settings: " +
			"boot_timeout of 2h",
	} {
		_, err := Parse([]byte(text), "farm.toml")
		if e := new(farm.Error); !errors.As(err, &e) || e.Kind != farm.Invalid ||
			!strings.HasPrefix(e.Message, "farm.toml: ") || !strings.Contains(e.Message, says) || e.Hint == "" {
			t.Errorf("%s\n%v, want %q", text, err, says)
		}
	}
}

// The example is a farm, and what is commented out of it is one too.
func TestExampleFarm(t *testing.T) {
	text, err := os.ReadFile("../../packaging/cells.toml")
	if err != nil {
		t.Fatal(err)
	}
	f, err := Parse(text, "cells.toml")
	if err != nil {
		t.Fatal(err)
	}
	again(t, f)
}

// TestEveryFarmKeyIsExplained holds docs/guide/cells.md to have every key of a farm file in one of its tables, and no
// other.
func TestEveryFarmKeyIsExplained(t *testing.T) {
	text, err := os.ReadFile("../../docs/guide/cells.md")
	if err != nil {
		t.Fatal(err)
	}
	explained := map[string]bool{}
	for line := range strings.SplitSeq(string(text), "\n") {
		if first, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | "); ok && strings.HasPrefix(line, "| `") {
			for _, word := range strings.Split(first, ", ") {
				explained[strings.Trim(word, "`")] = true
			}
		}
	}
	keys := map[string]bool{}
	for _, table := range []any{settingsTable{}, maximaTable{}, cellTable{}, projectTable{}, shapeTable{},
		scoreTable{}, networkTable{}, groupTable{}, userTable{}, grantTable{}, mappingTable{}} {
		for f := range fieldsOf(table) {
			keys[f] = true
		}
	}
	if d := cmp.Diff(keys, explained); d != "" {
		t.Errorf("keys of farm files (-) and of the page (+):\n%s", d)
	}
}

func fieldsOf(table any) map[string]bool {
	keys := map[string]bool{}
	for i, v := 0, reflect.TypeOf(table); i < v.NumField(); i++ {
		key, _, _ := strings.Cut(v.Field(i).Tag.Get("toml"), ",")
		keys[key] = true
	}
	return keys
}
