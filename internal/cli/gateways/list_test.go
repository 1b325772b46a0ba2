package gateways

import (
	"bytes"
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/list.txt")

// TestList holds what people are shown to the file.
func TestList(t *testing.T) {
	const path = "testdata/list.txt"
	var got bytes.Buffer
	if err := write(&got, shown()); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("not as in %s; write it with -update\n%s", path, &got)
	}
}
