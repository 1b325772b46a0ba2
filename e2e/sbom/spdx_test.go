package main

import (
	"debug/buildinfo"
	"encoding/json"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

func TestSPDX(t *testing.T) {
	info := &buildinfo.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Path: "example.org/program"}}
	info.Deps = []*debug.Module{
		{Path: "example.org/a", Version: "v1.0.0", Sum: "h1:abc="},
		{Path: "example.org/b", Version: "v1.0.0", Replace: &debug.Module{Path: "example.org/c", Version: "v2.0.0"}},
	}
	program := []byte("program")
	text, err := json.Marshal(describe(info, "grange", "0.1.0", program, time.Unix(1e9, 0)))
	if err != nil {
		t.Fatal(err)
	}
	for change, want := range map[string]string{
		"": "",
		`"versionInfo":"v1.0.0"|"versionInfo":"v1.0.1"`: "example.org/a v1.0.1 is " +
			"not in the program",
		`"name":"example.org/c"|"name":"example.org/b"`: "example.org/c v2.0.0 is " +
			"missing",
		`SPDXRef-module-example.org-c|SPDXRef-module-example.org-a`: "example.org/c has no ID " +
			"of its own",
		`SPDXRef-module-example.org-c|SPDXRef-module/example`: "example.org/c has no ID " +
			"of its own",
		`"relatedSpdxElement":"SPDXRef-module-std"|"relatedSpdxElement":"SPDXRef-nobody"`: "no such element",
		`2001-09-09T01:46:40Z|2001-09-09`:                                                 "created",
		`"checksumValue":"|"checksumValue":"0`:                                            "is not of this program",
		`SPDX-2.3|SPDX-3.0`:                                                               "the head is SPDX-3.0",
	} {
		from, to, _ := strings.Cut(change, "|")
		var d spdx
		if err := json.Unmarshal([]byte(strings.Replace(string(text), from, to, 1)), &d); err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := checkSPDX(info, program, d); err != nil {
			got = err.Error()
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", change, got, want)
		}
	}
	if err := checkSPDX(info, program, spdx{}); err == nil {
		t.Error("nothing is a document")
	}
}
