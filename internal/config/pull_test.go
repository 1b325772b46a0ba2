package config

import "testing"

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
		if a.MayPull(ref) != want {
			t.Error(ref)
		}
	}
}
