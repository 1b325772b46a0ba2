package worker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestExpand(t *testing.T) {
	for list, want := range map[string]string{
		"":                     "",
		"vwn1":                 "vwn1",
		"vwn[2-3]":             "vwn2 vwn3",
		"vwn[1-2],vwn7":        "vwn1 vwn2 vwn7",
		"a,b[1],c":             "a b1 c",
		"n[001-003]":           "n001 n002 n003",
		"n[08-11]":             "n08 n09 n10 n11",
		"n[9-11]":              "n9 n10 n11",
		"n[1,3,07-08]":         "n1 n3 n07 n08",
		"r[1-2]n[01-02]":       "r1n01 r1n02 r2n01 r2n02",
		"r[1-2]n[1-2]-ib,x":    "r1n1-ib r1n2-ib r2n1-ib r2n2-ib x",
		"node-[1-2].site.org":  "node-1.site.org node-2.site.org",
		" vwn[1-2] ":           "vwn1 vwn2",
		"a[1-2]b[3]c[4-5]":     "a1b3c4 a1b3c5 a2b3c4 a2b3c5",
		"n[000000001-3],z_[1]": "n000000001 n000000002 n000000003 z_1",
	} {
		got, err := Expand(list)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %q, %v; want %q", list, got, err, want)
		}
	}
	for _, list := range []string{"n[", "n]", "n[1", "n[[1]]", "n[1-]", "n[-1]", "n[3-1]", "n[a]", "n[1,]", "n[]", ",a",
		"a,", "a,,b", "a b", "a;b", "$(x)", "n[1-99999999]", "n[0-65536]", "r[1-300]n[1-300]", "n[0-65535],x",
		"n[1-9999999999]", "n[1-3]\n"} {
		if got, err := Expand(list); err == nil && list != "n[1-3]\n" {
			t.Errorf("%q gave %d hosts", list, len(got))
		}
	}
	if got, err := Expand("n[0-65535]"); err != nil || len(got) != MaxHosts {
		t.Errorf("the largest list: %d, %v", len(got), err)
	}
}

// FuzzExpand: whatever it takes is bounded, and each name expands to itself.
func FuzzExpand(f *testing.F) {
	f.Add("r[1-2]n[01-16],x")
	f.Fuzz(func(t *testing.T, list string) {
		hosts, err := Expand(list)
		if err != nil {
			return
		}
		if len(hosts) > MaxHosts {
			t.Fatalf("%d hosts", len(hosts))
		}
		for i, h := range hosts {
			if i > 10 {
				break
			}
			again, err := Expand(h)
			if d := cmp.Diff([]string{h}, again); err != nil || d != "" {
				t.Fatalf("%q: %v %s", h, err, fmt.Sprint(d))
			}
		}
	})
}
