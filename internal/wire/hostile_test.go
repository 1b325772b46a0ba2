package wire

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

const escapes = "a\x1b[2J\u202e\xff\nb"

// TestWordsOfHosts: what a host says of itself and its VMs moves nobody's cursor.
func TestWordsOfHosts(t *testing.T) {
	f, err := ParseFacts(fleet.Facts{Version: escapes, Instance: escapes, Boot: escapes, Accelerator: escapes,
		Kind: escapes, Images: []string{escapes}, Networks: []string{escapes}, Short: []string{escapes},
		Topology: fleet.Topology{CPU: api.CPU{Vendor: escapes, Model: escapes, Flags: []string{escapes}}}})
	if err != nil {
		t.Fatal(err)
	}
	checkWords(t, f, false)
	o, err := ParseObserved(fleet.Observed{State: string(farm.VMFailed),
		Reason: escapes + strings.Repeat("ß", maxReason), Digest: escapes, CPUTime: math.NaN()})
	if err != nil || o.CPUTime != 0 {
		t.Fatal(o.CPUTime, err)
	}
	checkWords(t, o, true)
}

// TestBoundsOfReports: no word and no list of a report is kept, or quoted in an error, at whatever length a host sends.
func TestBoundsOfReports(t *testing.T) {
	const most = 1 << 17 // bytes, of the longest list of words of one letter
	long, rows := strings.Repeat("x", 1<<20), 1<<16
	many := slices.Repeat([]string{"x"}, rows)
	facts := func(f fleet.Facts) fleet.Report { return fleet.Report{Facts: &f} }
	topology := func(v fleet.Topology) fleet.Report { return facts(fleet.Facts{Topology: v}) }
	vm := func(v fleet.Observed) fleet.Report { return fleet.Report{VMs: []fleet.Observed{v}} }
	side := func(m fleet.MoveSide) fleet.Report { return vm(fleet.Observed{State: "running", Move: &m}) }
	for name, r := range map[string]fleet.Report{
		"instance":            {Instance: long},
		"version":             facts(fleet.Facts{Version: long}),
		"instance of facts":   facts(fleet.Facts{Instance: long}),
		"boot":                facts(fleet.Facts{Boot: long}),
		"accelerator":         facts(fleet.Facts{Accelerator: long}),
		"kind":                facts(fleet.Facts{Kind: long}),
		"reserved CPUs":       facts(fleet.Facts{ReservedCPUs: long}),
		"ranges that overlap": facts(fleet.Facts{ReservedCPUs: strings.Repeat("0-8191,", 1<<18)}),
		"image":               facts(fleet.Facts{Images: []string{long}}),
		"images":              facts(fleet.Facts{Images: many}),
		"network":             facts(fleet.Facts{Networks: []string{long}}),
		"networks":            facts(fleet.Facts{Networks: many}),
		"short":               facts(fleet.Facts{Short: []string{long}}),
		"much short":          facts(fleet.Facts{Short: many}),
		"trusts":              facts(fleet.Facts{Trusts: many}),
		"authority":           facts(fleet.Facts{Trusts: []string{long}}),
		"batch node":          facts(fleet.Facts{BatchNode: long}),
		"plans":               facts(fleet.Facts{Taken: make([]api.Plan, rows)}),
		"image use":           facts(fleet.Facts{ImageUse: make([]fleet.ImageUse, rows)}),
		"digest of use":       facts(fleet.Facts{ImageUse: []fleet.ImageUse{{Digest: long}}}),
		"order of use":        facts(fleet.Facts{ImageUse: []fleet.ImageUse{{Order: long}}}),
		"reason of use":       facts(fleet.Facts{ImageUse: []fleet.ImageUse{{Reason: long}}}),
		"file systems":        facts(fleet.Facts{FileSystems: make([]fleet.HostFileSystem, rows)}),
		"source":              facts(fleet.Facts{FileSystems: []fleet.HostFileSystem{{Source: long}}}),
		"type":                facts(fleet.Facts{FileSystems: []fleet.HostFileSystem{{Type: long}}}),
		"mount point":         facts(fleet.Facts{FileSystems: []fleet.HostFileSystem{{MountPoint: long}}}),
		"drains":              facts(fleet.Facts{FileSystems: []fleet.HostFileSystem{{Drains: many}}}),
		"drain":               facts(fleet.Facts{FileSystems: []fleet.HostFileSystem{{Drains: []string{long}}}}),
		"findings":            facts(fleet.Facts{Findings: make([]fleet.HostFinding, rows)}),
		"rule":                facts(fleet.Facts{Findings: []fleet.HostFinding{{Rule: long}}}),
		"severity":            facts(fleet.Facts{Findings: []fleet.HostFinding{{Severity: long}}}),
		"vendor":              topology(fleet.Topology{CPU: api.CPU{Vendor: long}}),
		"model":               topology(fleet.Topology{CPU: api.CPU{Model: long}}),
		"flag":                topology(fleet.Topology{CPU: api.CPU{Flags: []string{long}}}),
		"flags":               topology(fleet.Topology{CPU: api.CPU{Flags: many}}),
		"online":              topology(fleet.Topology{Online: long}),
		"sockets":             topology(fleet.Topology{Sockets: make([]api.Socket, rows)}),
		"cores":               topology(fleet.Topology{Cores: make([]api.Core, rows)}),
		"kind of a core":      topology(fleet.Topology{Cores: []api.Core{{Kind: long}}}),
		"nodes":               topology(fleet.Topology{Nodes: make([]api.Node, rows)}),
		"pages":               topology(fleet.Topology{Nodes: []api.Node{{Pages: make([]api.HugePages, rows)}}}),
		"caches":              topology(fleet.Topology{L3: make([]string, rows)}),
		"distances":           topology(fleet.Topology{Distance: make([][]int, rows)}),
		"distances of a node": topology(fleet.Topology{Distance: [][]int{make([]int, rows)}}),
		"state":               vm(fleet.Observed{State: long}),
		"reason":              vm(fleet.Observed{State: "failed", Reason: long}),
		"digest":              vm(fleet.Observed{State: "running", Digest: long}),
		"vCPUs":               vm(fleet.Observed{State: "running", Plan: &api.Plan{VCPUs: many}}),
		"emulator":            vm(fleet.Observed{State: "running", Plan: &api.Plan{Emulator: long}}),
		"cells":               vm(fleet.Observed{State: "running", Plan: &api.Plan{Cells: make([]api.Cell, rows)}}),
		"ID of a move":        side(fleet.MoveSide{ID: long}),
		"phase of a move":     side(fleet.MoveSide{Phase: long}),
		"reason of a move":    side(fleet.MoveSide{Reason: long}),
		"host of a move":      side(fleet.MoveSide{Host: long}),
		"address of a move":   side(fleet.MoveSide{Address: long}),
	} {
		if kept, err := sizeKept(t, r); kept > most || err != nil && len(err.Error()) > 2*maxWord {
			t.Errorf("%s: %d bytes are kept, and an error has %d", name, kept, len(fmt.Sprint(err)))
		}
	}
}

// sizeKept returns the size of all that a server takes from a report, as JSON.
func sizeKept(t *testing.T, r fleet.Report) (size int, err error) {
	t.Helper()
	Bound(&r)
	kept := []any{r.Instance}
	if r.Facts != nil {
		kept = append(kept, r.Facts.Boot, r.Facts.Trusts)
		f, err := ParseFacts(*r.Facts)
		if err != nil {
			return 0, err
		}
		kept = append(kept, Facts(f, time.Time{}))
	}
	for _, v := range r.VMs {
		o, err := ParseObserved(v)
		if err != nil {
			return 0, err
		}
		kept = append(kept, observed("id", o), ParseMoveSide(v.Move))
	}
	text, err := json.Marshal(kept)
	if err != nil {
		t.Fatal(err)
	}
	return len(text), nil
}

// checkWords looks at all strings of a value.
func checkWords(t *testing.T, v any, lines bool) {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, w := range v {
				walk(w)
			}
		case []any:
			for _, w := range v {
				walk(w)
			}
		case string:
			bad := func(r rune) bool { return !unicode.IsPrint(r) && !(lines && r == '\n') || r == utf8.RuneError }
			if strings.ContainsFunc(v, bad) || len(v) > maxReason {
				t.Errorf("%q", v)
			}
		}
	}
	walk(tree)
}

// FuzzReport reads what a host may send: it is refused or it is something that can be kept and shown.
func FuzzReport(f *testing.F) {
	for _, r := range []fleet.Report{
		{Instance: "i", Whole: true,
			Facts: &fleet.Facts{Version: "1", ReservedCPUs: "0-1",
				Topology: fleet.Topology{Online: "0-3", Cores: []api.Core{{Threads: "0,2"}},
					Nodes: []api.Node{{CPUs: "0-3", Memory: 1 << 30}}, L3: []string{"0-3"}},
				Taken: []api.Plan{{VCPUs: []string{"0"}, Emulator: "0-3"}}}},
		{VMs: []fleet.Observed{{ID: "x", State: "running", Reason: escapes, Since: time.Unix(1e9, 0), CPUTime: 1e300,
			Plan: &api.Plan{VCPUs: []string{"1"}, Cells: []api.Cell{{VCPUs: "0", Memory: 1 << 30}}}}}},
	} {
		text, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var r fleet.Report
		if json.Unmarshal(text, &r) != nil {
			return
		}
		if r.Facts != nil {
			if facts, err := ParseFacts(*r.Facts); err == nil {
				checkWords(t, Facts(facts, time.Time{}), false)
			} else if !farm.IsKind(err, farm.Invalid) {
				t.Error(err)
			}
		}
		for _, v := range r.VMs {
			o, err := ParseObserved(v)
			if err != nil {
				if !farm.IsKind(err, farm.Invalid) {
					t.Error(err)
				}
				continue
			}
			if o.CPUTime < 0 {
				t.Error(o.CPUTime)
			}
			checkWords(t, observed("id", o), true)
		}
	})
}
