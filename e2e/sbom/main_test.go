package main

import (
	"debug/buildinfo"
	"encoding/json"
	"runtime/debug"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	info := &buildinfo.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Path: "example.org/program"}}
	info.Deps = []*debug.Module{
		{Path: "example.org/a", Version: "v1.0.0"},
		{Path: "example.org/b", Version: "v1.0.0", Replace: &debug.Module{Path: "example.org/c", Version: "v2.0.0"}},
	}
	const whole = `{"bomFormat":"CycloneDX","metadata":{"component":{"name":"example.org/program"}},"components":[
		{"name":"example.org/a","version":"v1.0.0"},{"name":"example.org/c","version":"v2.0.0"},
		{"name":"std","version":"go1.26.0"}]}`
	for change, want := range map[string]string{
		"":              "",
		`v1.0.0|v1.0.1`: "example.org/a v1.0.1 is not in the program\nexample.org/a v1.0.0 is missing",
		`{"name":"std","version":"go1.26.0"}|{"name":"example.org/c","version":"v2.0.0"}`: "example.org/c v2.0.0 is " +
			"not in the program\nstd go1.26.0 is missing",
		`"metadata":{|"metadata":{"timestamp":"2026-01-01T00:00:00Z",`: "it has a serial number " +
			"or a time: the same build would give another file",
		`org/program|org/other`: `it is about "example.org/other", not example.org/program`,
		`CycloneDX|SPDX`:        `format "SPDX"`,
	} {
		from, to, _ := strings.Cut(change, "|")
		var b bom
		if err := json.Unmarshal([]byte(strings.Replace(whole, from, to, 1)), &b); err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := check(info, b); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s:\n%s\nwant:\n%s", change, got, want)
		}
	}
}
