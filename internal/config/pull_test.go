package config

import (
	"testing"
	"time"
)

func TestPullImages(t *testing.T) {
	for text, ok := range map[string]bool{
		`["oci://r.example/a/", "dir:/cvmfs/unpacked.cern.ch/", "sif:/a/b.sif"]`: true,
		`[]`: true, `[""]`: false, `["oci://"]`: false, `["/"]`: false, `["dir:/"]`: false, `["http://r.example/"]`: false,
	} {
		if _, err := ParseAgent([]byte("pull_images = "+text+"\n"), "test"); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
	a := Agent{PullImages: []string{"oci://r.example/a/", "oci://r.example/b:1"}}
	for ref, want := range map[string]bool{"oci://r.example/a/x:2": true, "oci://r.example/ab": false,
		"oci://r.example/b:1": true, "oci://r.example/b:12": false, "": false} {
		if _, ok := a.PullEntry(ref); ok != want {
			t.Error(ref)
		}
	}
	for entry, want := range map[string]string{"dir:/a/b/": "/a/b", "dir:/a/b": "", "sif:/a/": "/a",
		"oci-layout:/a/b:1": "", "oci://r.example/a/": ""} {
		if got := PullDirectory(entry); got != want {
			t.Errorf("%s: %q", entry, got)
		}
	}
	for entry, want := range map[string]string{"oci://r.example/a/": "r.example", "oci+http://127.0.0.1:5000/": "127.0.0.1",
		"oci://[::1]:5000/a": "::1", "oci://r.example/a:1@sha256:00": "r.example", "dir:/a/": "", "sif:/a": ""} {
		if got := PullHost(entry); got != want {
			t.Errorf("%s: host %q", entry, got)
		}
	}
}

func TestUnusedImages(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "720h": 720 * time.Hour, "1h": time.Hour, "30d": -1, "": -1,
		"-24h": -1, "1s": -1} {
		if got, err := unusedImages(text); (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
