package wire

import (
	"encoding/json"
	"math"
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
