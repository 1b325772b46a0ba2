package conform

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"
)

func owner(info fs.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }

// mostRuns is how often a job without a VM may be tried, whatever counts: the wrapper, the plug-in or the batch system.
const mostRuns = 10

// unknownImage is one that no lab has.
const unknownImage = "no-such-image"

// failClosed breaks something and submits a job, which must leave no trace wherever the marker's directory is seen: not
// on the host, and in a VM only if the fault does not keep the VM from starting, which every fault here does.
func failClosed(f Fault) func(context.Context, *try) error {
	return func(ctx context.Context, t *try) (err error) {
		const long = 20 * time.Second // more than a wrapper waits for an agent
		mend, err := t.Break(ctx, f)
		if err != nil {
			return err
		}
		mended := false
		defer func() {
			if !mended {
				mend()
			}
		}()
		j := Job{Script: shebang + "cat /proc/sys/kernel/random/boot_id >>" + t.file("marker") + "\necho ran\n"}
		if f == NoImage {
			j.Image = unknownImage
		}
		id, err := t.submit(ctx, j)
		if err != nil {
			t.note = "refused at submission"
			return t.noTrace(Result{})
		}
		short, cancel := context.WithTimeout(ctx, long)
		defer cancel()
		r, err := t.wait(short, id)
		switch {
		case err != nil && short.Err() == nil:
			return err
		case err != nil: // it waits, as it may
			t.note = "waits in the queue"
		case r.Runs > mostRuns:
			return fmt.Errorf("a job that can not run was tried %d times: %v", r.Runs, r)
		case r.State == Done:
			return fmt.Errorf("a job that can not have run is said to be %v", r)
		default:
			t.note = string(r.State)
		}
		r.Stdout, r.Stderr = t.Output(id)
		if err := t.noTrace(r); err != nil {
			return err
		}
		waits := r.State == ""
		if waits {
			if err := t.Kill(ctx, id); err != nil {
				return err
			}
		}
		mend()
		mended = true
		if waits {
			if r, err = t.wait(ctx, id); err != nil {
				return err
			}
		}
		if err := t.noTrace(r); err != nil {
			return fmt.Errorf("after mending: %w", err)
		}
		if wrong := t.Sound(ctx); len(wrong) > 0 {
			return fmt.Errorf("after mending: %s", strings.Join(wrong, "; "))
		}
		return nil
	}
}

func (t *try) noTrace(r Result) error {
	marker, err := os.ReadFile(t.file("marker"))
	if !errors.Is(err, fs.ErrNotExist) || strings.Contains(r.Stdout, "ran") {
		host, _ := bootID()
		return fmt.Errorf("THE JOB RAN: it saw boot ID %q (%v), the host's is %s; %v", marker, err, host, r)
	}
	return nil
}

func requeue(ctx context.Context, t *try) error {
	for _, f := range []Fault{NoAgent, NoHypervisor} {
		mend, err := t.Break(ctx, f)
		if err != nil {
			return err
		}
		r, err := t.job(ctx, Job{Script: shebang + "echo ran\n"})
		mend()
		if err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
		if t.note != "" {
			t.note += ", "
		}
		t.note += fmt.Sprintf("%s: %d runs", f, r.Runs)
		if r.State != NotStarted || r.Runs < 2 || r.Runs > mostRuns || strings.Contains(r.Stdout, "ran") {
			return fmt.Errorf("%s: the job ended as %v", f, r)
		}
	}
	return nil
}

func afterwards(ctx context.Context, t *try) error {
	if err := ownVM(ctx, t); err != nil {
		return err
	}
	left := t.Lab().Leaks(ctx)
	if left = append(left, t.Sound(ctx)...); len(left) > 0 {
		return errors.New(strings.Join(left, "\n"))
	}
	return nil
}
