package guest

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRaw carries a job and a step by JSON, with and without bytes that are not UTF-8.
func TestRaw(t *testing.T) {
	for _, odd := range []string{"ü", "caf\xe9", "\xff\x80\x00", ""} {
		job := Job{Argv: []string{"cat", odd}, Env: []string{"A=1", "B=" + odd}, Dir: "/data/" + odd,
			Binds: []Bind{{Target: "/"}, {Target: "/data/" + odd}}}
		step := Step{Argv: job.Argv, Env: job.Env, Dir: job.Dir}
		carried, carriedStep := job, step
		carried.Encode()
		carriedStep.Encode()
		if plain := odd == "ü" || odd == ""; plain != (carried.Raw == nil) {
			t.Errorf("%q: %+v", odd, carried.Raw)
		}
		var got Job
		var gotStep Step
		for from, to := range map[any]any{&carried: &got, &carriedStep: &gotStep} {
			text, err := json.Marshal(from)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, to); err != nil {
				t.Fatal(err)
			}
		}
		got.Decode()
		gotStep.Decode()
		if d := cmp.Diff(job, got) + cmp.Diff(step, gotStep); d != "" {
			t.Errorf("%q: %s", odd, d)
		}
	}
	hostile := Job{Argv: []string{"a"}, Raw: &Raw{Argv: [][]byte{[]byte("b"), []byte("c")}}}
	hostile.Decode()
	if len(hostile.Argv) != 1 || hostile.Argv[0] != "a" {
		t.Errorf("%q", hostile.Argv)
	}
}
