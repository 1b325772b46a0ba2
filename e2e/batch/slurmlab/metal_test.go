package slurmlab

import (
	"context"
	"testing"
	"time"

	"github.com/grange-project/grange/e2e/batch/conform"
)

// TestMetal holds the lab itself: a Slurm without grange, two of them beside each other, and nothing left of them.
func TestMetal(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	t.Cleanup(cancel)
	for _, name := range []string{"one", "another"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := Start(ctx, Options{NoPlugin: true})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
				if exists(l.dir) {
					t.Errorf("%s is left", l.dir)
				}
			}()
			id, err := l.Submit(ctx,
				conform.Job{Script: "#!/bin/sh\necho \"$0 $1\" >&2; cat; exit 3\n", Args: []string{"a b"},
					Stdin: "input"})
			if err != nil {
				t.Fatal(err)
			}
			r, err := l.Wait(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			if r.State != conform.Failed || r.Code != 3 || r.Stdout != "input" {
				t.Errorf("%v", r)
			}
			if wrong := l.Sound(ctx); len(wrong) > 0 {
				t.Error(wrong)
			}
		})
	}
}
