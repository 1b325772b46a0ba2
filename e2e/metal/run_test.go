package main

import (
	"slices"
	"testing"
)

// TestParse: a test whose host the emulator ended runs again, and is forgotten then; no other is.
func TestParse(t *testing.T) {
	first, err := parse([]byte(`ok  	e2e/metal	3s
failed: e2e/metal TestMove/drain
failed: e2e/metal TestMove
failed: e2e/metal TestNUMA
failed: e2e/metal
5 passed, 3 failed, 1 skipped
{"passed":5,"failed":4,"skipped":1}
`))
	if err != nil {
		t.Fatal(err)
	}
	first.Cut = []string{"TestMove", "TestOther"}
	cut := first.cutTests()
	if !slices.Equal(cut, []string{"TestMove"}) {
		t.Fatalf("to be repeated: %q", cut)
	}
	var sum result
	sum.add(first)
	sum.forget(cut)
	again, err := parse([]byte("2 passed, 0 failed, 0 skipped\n{\"passed\":2,\"failed\":0}\n"))
	if err != nil {
		t.Fatal(err)
	}
	sum.add(again)
	if f := sum.figures; f.Passed != 7 || f.Failed != 1 || f.Skipped != 1 || f.Repeated != 1 {
		t.Errorf("%+v", f)
	}
	if r, err := parse([]byte("signal: killed")); err == nil {
		t.Errorf("no error, but %+v", r)
	}
}
