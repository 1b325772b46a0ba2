package tuning

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/grange-project/grange/internal/farm"
)

// Every value that a built-in profile sets rests on a source.
func TestBuiltInProfilesHaveSources(t *testing.T) {
	for _, p := range Profiles() {
		_, text, err := ProfileByName(p.Name)
		if err != nil {
			t.Fatal(err)
		}
		var set map[string]any
		if err := toml.Unmarshal([]byte(text), &set); err != nil {
			t.Fatal(err)
		}
		for key := range set {
			if slices.Contains([]string{"name", "title", "role", "match", "source", "overhead"}, key) {
				continue
			}
			if !slices.ContainsFunc(p.Sources, func(b Basis) bool { return slices.Contains(b.Keys, key) }) {
				t.Errorf("%s: %s has no source", p.Name, key)
			}
		}
		if p.Title == "" {
			t.Errorf("%s has no title", p.Name)
		}
	}
}

func TestChoose(t *testing.T) {
	cpu := func(vendor, name string, family, model int) farm.HostFacts {
		return farm.HostFacts{Topology: farm.Topology{CPU: farm.CPUModel{Vendor: vendor, Name: name, Family: family,
			Model: model}}}
	}
	for _, c := range []struct {
		host farm.HostFacts
		role Role
		want string
	}{
		{cpu("GenuineIntel", "Intel(R) Xeon(R) CPU E5-2650 v2 @ 2.60GHz", 6, 62), Compute, "cern-e5-2650v2-compute"},
		{cpu("GenuineIntel", "Intel(R) Xeon(R) CPU E5-2650 v2 @ 2.60GHz", 6, 62), Service, "generic-service"},
		{cpu("GenuineIntel", "Intel(R) Xeon(R) CPU E5-2650 v2 @ 2.60GHz", 6, 62), Guest, "generic-guest"},
		{cpu("GenuineIntel", "Intel(R) Xeon(R) CPU E5-2630 v3 @ 2.40GHz", 6, 63), Compute, "cern-e5-2630v3-compute"},
		{cpu("GenuineIntel", "Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz", 6, 79), Compute, "generic-compute"},
		{cpu("GenuineIntel", "Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz", 6, 85), Compute, "xeon-scalable-compute"},
		{cpu("GenuineIntel", "Intel(R) Xeon(R) 6960P", 6, 173), Compute, "xeon-scalable-compute"},
		{cpu("GenuineIntel", "12th Gen Intel(R) Core(TM) i9-12900", 6, 151), Compute, "generic-compute"},
		{cpu("AuthenticAMD", "AMD EPYC 7742 64-Core Processor", 23, 49), Compute, "amd-epyc-compute"},
		{cpu("AuthenticAMD", "AMD EPYC 9755 128-Core Processor", 26, 2), Compute, "amd-epyc-compute"},
		{cpu("AuthenticAMD", "AMD Ryzen 9 7950X", 25, 97), Compute, "generic-compute"},
		{farm.HostFacts{}, Compute, "generic-compute"},
		{farm.HostFacts{}, "other", ""},
	} {
		if got := Choose(c.host, c.role).Name; got != c.want {
			t.Errorf("%s as %s: %s, want %s", c.host.Topology.CPU.Name, c.role, got, c.want)
		}
	}
}

// The trap of the documents: the untuned and tuned figures belong to the hardware they were measured on, and to EPT
// off.
func TestMeasuredOverheads(t *testing.T) {
	p, _, err := ProfileByName("cern-e5-2650v2-compute")
	if err != nil {
		t.Fatal(err)
	}
	want := map[[3]int]float64{{4, 8, 0}: 7.8, {2, 16, 0}: 16, {1, 32, 0}: 20.4, {4, 8, 1}: 2.5, {2, 16, 1}: 8.4,
		{1, 32, 1}: 12.9}
	for _, o := range p.Overheads {
		tuned := 0
		if o.Tuned {
			tuned = 1
			if !strings.Contains(o.Source, "EPT off") {
				t.Errorf("the tuned figure %v does not say that EPT was off", o)
			}
		}
		if want[[3]int{o.VMs, o.VCPUs, tuned}] != o.Percent {
			t.Errorf("%+v is not in the document", o)
		}
	}
	if len(p.Overheads) != len(want) {
		t.Errorf("%d overheads, want %d", len(p.Overheads), len(want))
	}
}

func TestBadProfilesAreErrors(t *testing.T) {
	head := "name = \"mine\"\nrole = \"compute\"\n"
	for text, want := range map[string]string{
		" \n":                       "it is empty",
		head + "overcommit = inf\n": "overcommit is +Inf",
		head + "[[overhead]]\nvms = 1\nvcpus = 2\nsource = \"x\"\npercent = nan\n": "overhead 1 is NaN percent",
		head + "pinnned = true\n":                                 `line 3: unknown key "pinnned"`,
		head + "[match]\nvendro = \"x\"\n":                        `unknown key "match.vendro"`,
		head + "ksm = \"maybe\"\n":                                `ksm is "maybe"`,
		head + "reserved = \"4 elephants\"\n":                     "reserved:",
		head + "page_sizes = [\"3M\"]\n":                          "page_sizes: invalid page size 3M",
		head + "page_share = 1.5\n":                               "page_share is 1.5",
		head + "page_share = nan\n":                               "page_share is NaN",
		head + "swappiness = -1\n":                                "swappiness is -1",
		head + "pinned = 3\n":                                     "line 3",
		head + "[[source]]\nname = \"a\"\n":                       "source 1",
		head + "[[source]]\nname=\"a\"\nsays=\"b\"\nkeys=[\"x\"]": `source 1 is for "x"`,
		head + "[[overhead]]\npercent = 3.0\n":                    "overhead 1",
		"role = \"compute\"\n":                                    "name is",
		"name = \"mine\"\n":                                       "role is missing",
		"name = \"mine\"\nrole = \"cook\"\n":                      `role is "cook"`,
	} {
		_, err := ParseProfile([]byte(text), "mine.toml")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "mine.toml: ") {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
	p, err := ParseProfile([]byte(head+"reserved = \"64G\"\npage_sizes = [\"1G\", \"2M\"]\nswappiness = 0\n"),
		"mine.toml")
	if err != nil || p.Reserved != 64*farm.GiB || !slices.Equal(p.PageSizes, []farm.Bytes{farm.GiB, 2 * farm.MiB}) ||
		p.Swappiness != 0 {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := ParseProfile([]byte(head), "mine.toml"); err != nil || p.Swappiness != -1 {
		t.Errorf("without swappiness: %d, %v", p.Swappiness, err)
	}
}

// The guide has a line for every key of a profile.
func TestGuideExplainsProfiles(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guide/tuning.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range profileKeys() {
		text := string(guide)
		if !strings.Contains(text, "`"+key+"`") && !strings.Contains(text, "`["+key+"]`") &&
			!strings.Contains(text, "`[["+key+"]]`") {
			t.Errorf("docs/guide/tuning.md does not explain %s", key)
		}
	}
}
