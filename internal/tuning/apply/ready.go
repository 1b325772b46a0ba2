package apply

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// reserveOf is memory that must stay available while memory is taken, for Linux begins to swap well before the last
// page: one part in 32 of the host's, at least 256 MiB and at most 2 GiB, which is what the rules about KSM leave to
// spare.
func reserveOf(total int64) int64 { return min(max(total/32, int64(256*farm.MiB)), int64(2*farm.GiB)) }

// memory is what a host has, in bytes. Known is false where it does not tell.
type memory struct {
	available, reserve, swapFree int64
	known                        bool
}

func readRoom(root *os.Root) memory {
	b, err := readBytes(root, meminfo)
	if err != nil {
		return memory{}
	}
	m := readMemory(string(b))
	available, ok := m["MemAvailable"]
	if !ok { // before Linux 3.14
		available = m["MemFree"] + m["Active(file)"] + m["Inactive(file)"]
	}
	return memory{available, reserveOf(m["MemTotal"]), m["SwapFree"], m["MemTotal"] > 0}
}

// Needs is the memory that a plan takes at most: pages that KSM holds once and that become many, and huge pages.
func (p Plan) Needs(system System) farm.Bytes {
	var sum int64
	for _, s := range p.Steps {
		if s.Kind == StepUnmerge {
			sum += (sharing(system.Root()) + emptyPages(system.Root())) * pageSize
		}
		sum += s.more()
	}
	return farm.Bytes(max(0, sum))
}

// emptyPages is how many pages KSM holds as the kernel's zero page, where use_zero_pages says so. Linux counts them
// since 6.6.
func emptyPages(root *os.Root) int64 { return (&tree{root}).number(ksmDir + "/ksm_zero_pages") }

func sharing(root *os.Root) int64 { return (&tree{root}).number(ksmDir + "/pages_sharing") }

// Ready reports whether a plan can be made now. A farm.CodeVMsRunning passes by itself; see Await.
func (p Plan) Ready(system System) error {
	if p.Waits() {
		vms, err := system.VMs()
		if err != nil {
			return err
		}
		if len(vms) > 0 {
			return vmsRunning(vms)
		}
	}
	need, room := p.Needs(system), readRoom(system.Root())
	if free := max(0, room.available-room.reserve); room.known && int64(need) > free {
		return &farm.Error{Kind: farm.NoCapacity, Code: CodeNoHeadRoom,
			Message: fmt.Sprintf("the plan takes %s of memory (pages that KSM merged, and huge pages), and the host "+
				"can spare %s", mib(int64(need)), mib(free)),
			Hint: "end VMs first, or leave a rule out with --skip; until then KSM is better left running"}
	}
	return nil
}

// mib rounds up to whole MiB, for people.
func mib(n int64) farm.Bytes { return (farm.Bytes(n) + farm.MiB - 1) / farm.MiB * farm.MiB }

// Waits reports whether a step needs the host without VMs.
func (p Plan) Waits() bool {
	for _, s := range p.Steps {
		if s.NoVMs {
			return true
		}
	}
	return false
}

func vmsRunning(vms []VM) error {
	const most = 8
	var names []string
	for _, v := range vms[:min(most, len(vms))] {
		names = append(names, v.String())
	}
	if len(vms) > most {
		names = append(names, fmt.Sprintf("%d more", len(vms)-most))
	}
	return &farm.Error{Kind: farm.Conflict, Code: farm.CodeVMsRunning,
		Message: fmt.Sprintf("running on this host: %s: %s", farm.Count(len(vms), "VM"), strings.Join(names, ", ")),
		Hint: "`grange tune apply --drain` lets no new VM start and goes on when the last has ended; or --skip the " +
			"rules that need this"}
}

// Await waits until no VM runs. It calls tell with those that are left, whenever they change.
func Await(ctx context.Context, system System, tell func([]VM)) error {
	const pause = time.Second
	last := ""
	for {
		vms, err := system.VMs()
		if err != nil || len(vms) == 0 {
			return err
		}
		if now := fmt.Sprint(vms); now != last {
			tell(vms)
			last = now
		}
		select {
		case <-ctx.Done():
			return vmsRunning(vms)
		case <-time.After(pause):
		}
	}
}

// unmerge takes KSM's pages apart while memory lasts: the work is stopped as soon as less than the reserve is
// available, or the host begins to swap.
func unmerge(ctx context.Context, system System) error {
	const look = 20 * time.Millisecond
	root := system.Root()
	before := readRoom(root)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	watched := make(chan struct{})
	defer func() { stop(nil); <-watched }()
	go func() {
		defer close(watched)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(look):
			}
			if now := readRoom(root); now.known &&
				(now.available < now.reserve || now.swapFree < before.swapFree-int64(16*farm.MiB)) {
				stop(&farm.Error{Kind: farm.NoCapacity, Code: CodeNoHeadRoom,
					Message: fmt.Sprintf(
						"memory ran short while KSM's pages were taken apart: %s available, up to %d pages still "+
							"shared",
						mib(now.available), sharing(root)),
					Hint: "end VMs, then try again: what was taken apart stays so until KSM merges it anew"})
				return
			}
		}
	}()
	err := system.Unmerge(ctx)
	if n := sharing(root); err == nil && n > 0 {
		err = &farm.Error{Kind: farm.Unavailable, Code: CodeNotTaken,
			Message: fmt.Sprintf("%d pages are still shared after KSM's pages were taken apart", n), Hint: "try again"}
	}
	return err
}
