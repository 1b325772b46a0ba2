package apply

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Gate keeps new VMs off a host: its agent does.
type Gate interface {
	// Drain lets no new VM start until EndDrain, whatever becomes of us, and returns who still runs or starts. It is
	// called again to see who is left.
	Drain(ctx context.Context, reason string) (holders []string, err error)
	// EndDrain lets VMs start again. Ending what is not is no error.
	EndDrain(ctx context.Context) error
}

// Alone does work while no VM runs: it drains the host, waits for the last VM, takes back what an earlier apply or undo
// that was cut short has left, does the work and ends the drain. Cut short itself at any point, it leaves a drained
// host that Alone goes on with. work gets the run that was taken back, nil where there was none. The drain is not ended
// while the host is between two states. tell is called with those that are waited for, whenever they change.
func Alone(ctx context.Context, system System, gate Gate, o Options, tell func([]string),
	work func(takenBack *Run) error) error {
	err := empty(ctx, system, gate, tell)
	if err == nil {
		var run *Run
		if run, err = takeBackOpen(ctx, system, o); err == nil {
			err = work(run)
		}
	}
	if open, unread := openRun(system.Root()); unread != nil || open != nil {
		return errors.Join(err, unread)
	}
	return errors.Join(err, gate.EndDrain(context.WithoutCancel(ctx)))
}

// empty drains the host and waits until no VM is left.
func empty(ctx context.Context, system System, gate Gate, tell func([]string)) error {
	const pause = time.Second
	last := ""
	for {
		left, err := gate.Drain(ctx, "the host is being tuned: KVM is loaded anew, or memory taken for huge pages")
		if err != nil {
			return err
		}
		vms, err := system.VMs()
		if err != nil {
			return err
		}
		if len(left) == 0 && len(vms) == 0 {
			return nil
		}
		left = append(left, unnamed(vms, left)...)
		if now := fmt.Sprint(left); now != last {
			tell(left)
			last = now
		}
		select {
		case <-ctx.Done():
			return vmsRunning(vms)
		case <-time.After(pause):
		}
	}
}

// unnamed returns the VMs that are not among the holders, which read "NAME (of whom: what)".
func unnamed(vms []VM, holders []string) (out []string) {
	for _, v := range vms {
		held := func(h string) bool { return h == v.Name || strings.HasPrefix(h, v.Name+" (") }
		if !slices.ContainsFunc(holders, held) {
			out = append(out, v.String())
		}
	}
	return out
}

// openRun is the apply or undo that was cut short; nil where there is none.
func openRun(root *os.Root) (*Run, error) {
	runs, err := History(root)
	if err != nil {
		return nil, err
	}
	for _, r := range runs {
		if r.Phase.open() {
			return r, nil
		}
	}
	return nil, nil
}

func takeBackOpen(ctx context.Context, system System, o Options) (*Run, error) {
	open, err := openRun(system.Root())
	if err != nil || open == nil {
		return nil, err
	}
	return Undo(ctx, system, open.ID, false, o)
}
