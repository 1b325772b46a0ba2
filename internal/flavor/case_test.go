package flavor_test

import (
	"os"
	"strings"
	"testing"

	"github.com/grange-project/grange/e2e/novacases/judge"
	"github.com/grange-project/grange/internal/flavor"
)

func recorded(t *testing.T) []flavor.Case {
	t.Helper()
	f, err := os.Open("testdata/nova-cases.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	texts, err := flavor.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	var cases []flavor.Case
	for _, text := range texts {
		c, err := flavor.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		cases = append(cases, c)
	}
	return cases
}

func TestJudgeAgreesWithRecord(t *testing.T) {
	for _, c := range recorded(t) {
		if got := judge.Feasible(c); !c.Contested && got != *c.Expect {
			t.Errorf("%s (%s): the judge says %v, the record %v", c.ID, c.Source, got, *c.Expect)
		}
	}
}

func TestRecordedCases(t *testing.T) {
	cases := recorded(t)
	if len(cases) != 142 {
		t.Errorf("%d cases, want 142", len(cases))
	}
	for _, c := range cases {
		a := flavor.Fit(c)
		if a.Fits != *c.Expect && !c.Contested {
			t.Errorf("%s (%s): fits %v, want %v: %s", c.ID, c.Source, a.Fits, *c.Expect, a.Reason)
		} else if err := judge.Valid(c, a); err != nil {
			t.Errorf("%s (%s): %v: %+v", c.ID, c.Source, err, a)
		}
	}
}

func TestRead(t *testing.T) {
	const one = `{"id":"a","host":{"cells":[{"id":0,"dedicated_cpus":[0],"memory_mb":64}]},"request":{"cells":[{"vcpus_dedicated":[0],"memory_mb":64,"cpu_policy":"dedicated"}]}}`
	for _, text := range []string{one, "[" + one + "]", `{"about":"x","cases":[` + one + `]}`, " \n" + one} {
		cases, err := flavor.Read(strings.NewReader(text))
		if err != nil || len(cases) != 1 {
			t.Fatalf("%s: %d cases, %v", text, len(cases), err)
		}
		c, err := flavor.Parse(cases[0])
		if err != nil || c.ID != "a" || !flavor.Fit(c).Fits {
			t.Errorf("%s: %+v, %v, %+v", text, c, err, flavor.Fit(c))
		}
	}
	for _, text := range []string{"", "x", "{}", `{"cases":3}`, `[1`, `{"cases":[}`} {
		if cases, err := flavor.Read(strings.NewReader(text)); err == nil {
			t.Errorf("%q reads as %d cases", text, len(cases))
		}
	}
}

func TestParseRefuses(t *testing.T) {
	const guest = `"request":{"cells":[{"vcpus_dedicated":[0],"memory_mb":64}]}`
	for name, text := range map[string]string{
		"no host":         `{` + guest + `}`,
		"no guest":        `{"host":{"cells":[{"id":0}]}}`,
		"a number":        `7`,
		"CPU far away":    `{"host":{"cells":[{"id":0,"cpus":[99999999]}]},` + guest + `}`,
		"negative memory": `{"host":{"cells":[{"id":0,"memory_mb":-1}]},` + guest + `}`,
		"two of one id":   `{"host":{"cells":[{"id":0},{"id":0}]},` + guest + `}`,
		"CPU in two cells": `{"host":{"cells":[{"id":0,"dedicated_cpus":[1]},{"id":1,"dedicated_cpus":[1]}]},` +
			guest + `}`,
		"page size":       `{"host":{"cells":[{"id":0}]},"request":{"cells":[{"vcpus_dedicated":[0],"memory_mb":64,"pagesize_kb":"huge"}]}}`,
		"thread policy":   `{"host":{"cells":[{"id":0}]},"request":{"cells":[{"vcpus_dedicated":[0],"memory_mb":64,"thread_policy":"avoid"}]}}`,
		"CPU policy":      `{"host":{"cells":[{"id":0}]},"request":{"cells":[{"vcpus_dedicated":[0],"memory_mb":64,"cpu_policy":"own"}]}}`,
		"emulator":        `{"host":{"cells":[{"id":0}]},"request":{"emulator_threads":"away","cells":[{"vcpus_dedicated":[0],"memory_mb":64}]}}`,
		"no memory":       `{"host":{"cells":[{"id":0}]},"request":{"cells":[{"vcpus_dedicated":[0]}]}}`,
		"no vCPU":         `{"host":{"cells":[{"id":0}]},"request":{"cells":[{"memory_mb":64}]}}`,
		"shared and not":  `{"host":{"cells":[{"id":0}]},"request":{"cells":[{"vcpus_shared":[0],"vcpus_dedicated":[0],"memory_mb":64}]}}`,
		"pages twice":     `{"host":{"cells":[{"id":0,"pages":[{"size_kb":4},{"size_kb":4}]}]},` + guest + `}`,
		"fewer than none": `{"reserved_cpus":-1,"host":{"cells":[{"id":0}]},` + guest + `}`,
		"negative ratio":  `{"limits":{"cpu_allocation_ratio":-1},"host":{"cells":[{"id":0}]},` + guest + `}`,
		"sibling twice":   `{"host":{"cells":[{"id":0,"siblings":[[0,1],[1,2]]}]},` + guest + `}`,
		"too many pages": `{"host":{"cells":[{"id":0,"pages":[{"size_kb":1048576,"total":99999999999}]}]},` +
			guest + `}`,
		"a word for a CPU":  `{"host":{"cells":[{"id":0,"cpus":["a"]}]},` + guest + `}`,
		"memory is a float": `{"host":{"cells":[{"id":0,"memory_mb":1.5}]},` + guest + `}`,
	} {
		if c, err := flavor.Parse([]byte(text)); err == nil {
			t.Errorf("%s: parsed as %+v", name, c)
		}
	}
}

// FuzzFit asks for an answer to anything that parses: never a panic, and always a reason for a refusal.
func FuzzFit(f *testing.F) {
	document, err := os.Open("testdata/nova-cases.json")
	if err != nil {
		f.Fatal(err)
	}
	defer document.Close()
	texts, err := flavor.Read(document)
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := flavor.Parse(text)
		if err != nil || len(c.Host) > 16 || len(c.Guest) > 16 {
			return
		}
		if a := flavor.Fit(c); a.Fits != (a.Reason == "") || a.Fits && len(a.Cells) != len(c.Guest) {
			t.Errorf("%+v", a)
		}
	})
}
