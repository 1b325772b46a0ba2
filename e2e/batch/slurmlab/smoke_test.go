package slurmlab

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/e2e/batch/conform"
)

// TestSlurmSmoke is what `make test` knows of Slurm: jobs of a real one in real VMs, and never on the host by accident.
// All the rest is in make test-batch.
func TestSlurmSmoke(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 12*time.Minute)
	defer cancel()
	l, err := Start(ctx, Options{Agent: poolConfig})
	if err != nil {
		t.Fatal(err)
	}
	defer l.end(t)
	host, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	const where = "#!/bin/sh\ncat /proc/sys/kernel/random/boot_id\n"

	t.Run("exit status and VM", func(t *testing.T) {
		r := l.try(ctx, t, conform.Job{Script: where + "exit 3\n", Image: "micro"})
		if r.State != conform.Failed || r.Code != 3 || len(r.Stdout) != len(host) || r.Stdout == string(host) {
			t.Errorf("%v", r)
		}
	})
	t.Run("TERM trap", func(t *testing.T) {
		id := l.submit(ctx, t, conform.Job{Script: "#!/bin/sh\ntrap 'echo clean; exit 9' TERM\necho up\nwhile :; do " +
			"sleep 1 & wait $!; done\n"})
		for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
			if out, _ := l.Output(id); strings.Contains(out, "up") {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the job does not come up")
			}
		}
		if err := l.Cancel(ctx, id); err != nil {
			t.Fatal(err)
		}
		if r, err := l.Wait(ctx, id); err != nil || r.State != conform.Cancelled ||
			!strings.Contains(r.Stdout, "clean") {
			t.Errorf("%v %v", r, err)
		}
	})
	t.Run("unknown image", func(t *testing.T) {
		if id, err := l.Submit(ctx, conform.Job{Script: where, Image: "no-such-image"}); err == nil ||
			!strings.Contains(err.Error(), "there are: micro") {
			t.Errorf("job %s, %v", id, err)
		}
	})
	l.options(ctx, t, string(host))
	l.terminals(ctx, t, string(host))
	t.Run("prolog", func(t *testing.T) { l.prologNotes(ctx, t) })
	t.Run("options without a VM", func(t *testing.T) { l.withoutVM(ctx, t) })
	for _, fault := range []conform.Fault{conform.NoWrapper, conform.NoPlugin, conform.NoAgent} {
		t.Run(string(fault), func(t *testing.T) {
			mend, err := l.Break(ctx, fault)
			if err != nil {
				t.Fatal(err)
			}
			defer mend()
			marker := l.path("home/ran")
			id := l.submit(ctx, t, conform.Job{Script: "#!/bin/sh\ntouch " + marker + "\n"})
			l.atRest(ctx, t, id)
			if _, err := os.Stat(marker); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("THE JOB RAN on the host: %v", err)
			}
		})
	}
	if left := append(l.host.Leaks(ctx), l.Sound(ctx)...); len(left) > 0 {
		t.Errorf("left:\n%s", strings.Join(left, "\n"))
	}
}

func (l *Lab) submit(ctx context.Context, t *testing.T, j conform.Job) string {
	t.Helper()
	id, err := l.Submit(ctx, j)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (l *Lab) try(ctx context.Context, t *testing.T, j conform.Job) conform.Result {
	t.Helper()
	r, err := l.Wait(ctx, l.submit(ctx, t, j))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// atRest waits until a job was refused: it has ended, was queued again, or waits for a host that is out of service.
func (l *Lab) atRest(ctx context.Context, t *testing.T, id string) {
	t.Helper()
	var records []Record
	for ctx.Err() == nil {
		var err error
		if records, err = l.Show(ctx, id); err != nil {
			t.Fatal(err)
		}
		if r := records[0]; r.ended() || r["Restarts"] != "0" {
			t.Log(r)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("the job does not come to rest: %v; %v", records, l.soundNow(context.WithoutCancel(ctx)))
}
