package agent

import (
	"fmt"
	"maps"
	"slices"

	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/disk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/vmimage"
)

// part is what a VM takes of the host beside its plan, and whose sums it counts for.
type part struct {
	disks string     // the name of their directory; a second attempt's begins with it
	bytes farm.Bytes // that they may take
	owner uint32
	// the owner's sums count: an ordinary account asked for it outside of batch jobs, which their batch system confines
	sums bool
	who  policy.Who // the owner as exceptions see it
}

// takes says so, before the VM claims anything.
func (l *ledger) takes(id string, p part) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parts[id] = p
}

func (l *ledger) partOf(id string) part {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.parts[id]
}

// setLimits changes what one user may hold, and what of the file system of disks is not for disks. What is granted
// stays granted.
func (l *ledger) setLimits(c config.Limits, keep farm.Bytes) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limits, l.keep = c, keep
	l.serve()
}

// held is what somebody has, or may have.
type held struct {
	cpus  int
	bytes farm.Bytes // of memory
	disks farm.Bytes
}

func heldBy(p farm.Plan, disks farm.Bytes) held {
	return held{max(len(p.VCPUs), p.Held().Len()), p.Memory(), disks}
}

// beside refuses what concerns nobody but who asks: more than one user may hold, and disks that find no space. Nobody
// else waits behind it.
func (l *ledger) beside(id string, want held) error {
	if err := l.withinSums(id, want); err != nil {
		return err
	}
	return l.spaceFor(id)
}

// withinSums holds a wish, and what its user has, against what one user may have.
func (l *ledger) withinSums(id string, want held) error {
	mine := l.parts[id]
	if !mine.sums {
		return nil
	}
	var has held
	for other, g := range l.grants {
		if p := l.parts[other]; other != id && p.sums && p.owner == mine.owner {
			h := heldBy(g.plan, p.bytes)
			has.cpus, has.bytes, has.disks = has.cpus+h.cpus, has.bytes+h.bytes, has.disks+h.disks
		}
	}
	most := l.mostOf(mine.who)
	for _, x := range []struct {
		what             string
		has, want, limit uint64
		text             func(uint64) string
	}{
		{"CPUs", uint64(has.cpus), uint64(want.cpus), uint64(most.cpus),
			func(n uint64) string { return fmt.Sprint(n) }},
		{"of memory", uint64(has.bytes), uint64(want.bytes), uint64(most.bytes), sizeText},
		{"of disk space", uint64(has.disks), uint64(want.disks), uint64(most.disks), sizeText},
	} {
		switch {
		case x.want == 0:
		case x.want > x.limit:
			return &farm.Error{Kind: farm.Invalid, Code: CodeUserLimit,
				Hint: "ask for less; [limits] in the agent's configuration says what a user may have",
				Message: fmt.Sprintf("you may have %s %s on this host at once; this VM would take %s", x.text(x.limit),
					x.what, x.text(x.want))}
		case x.has+x.want > x.limit:
			return &farm.Error{Kind: farm.NoCapacity, Code: CodeUserLimit,
				Hint: "wait until VMs of yours have ended; [limits] in the agent's configuration says what a user " +
					"may have", Message: fmt.Sprintf(
					"your VMs here have %s %s, and you may have %s at once; this VM would take %s",
					x.text(x.has), x.what,
					x.text(x.limit), x.text(x.want))}
		}
	}
	return nil
}

func sizeText(n uint64) string { return farm.Bytes(n).Rounded().String() }

// mostOf is what a user may hold of this host.
func (l *ledger) mostOf(who policy.Who) held {
	limits := l.limits.Of(who)
	room := numa.NewRoom(l.topology, l.reserve, nil)
	var memory farm.Bytes
	for _, n := range room.Nodes {
		memory += n.Memory
		for size, count := range n.Pages {
			memory += size * farm.Bytes(count)
		}
	}
	out := held{int(limits.CPUs.Of(uint64(room.Free.Len()))), farm.Bytes(limits.Memory.Of(uint64(memory))), 0}
	if space, err := l.space(nil); err == nil {
		out.disks = farm.Bytes(limits.Disk.Of(uint64(space.Pool)))
	}
	return out
}

// space is the file system of disks, less what the host keeps for itself. promised is by the name of the disks.
func (l *ledger) space(promised map[string]farm.Bytes) (disk.Space, error) {
	if l.disks == nil {
		return disk.Space{}, nil
	}
	s, err := l.disks(promised)
	if short := l.keep; s.Free >= short {
		s.Free -= short
	} else {
		s.Short, s.Free = s.Short+short-s.Free, 0
	}
	s.Total, s.Pool = s.Total-min(s.Total, l.keep), s.Pool-min(s.Pool, l.keep)
	return s, err
}

// diskSpace is what disks of further VMs may have.
func (l *ledger) diskSpace() (disk.Space, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.space(l.promised(""))
}

// promised are the disks of all that has a grant, and of id.
func (l *ledger) promised(id string) map[string]farm.Bytes {
	out := map[string]farm.Bytes{}
	for other, p := range l.parts {
		if _, ok := l.grants[other]; (ok || other == id) && p.bytes > 0 {
			out[p.disks] = p.bytes
		}
	}
	return out
}

// spaceFor refuses disks that would not find the space that they may take.
func (l *ledger) spaceFor(id string) error {
	want := l.parts[id].bytes
	if want == 0 || l.disks == nil {
		return nil
	}
	space, err := l.space(l.promised(id))
	switch {
	case err != nil:
		return err
	case want > space.Total:
		return &farm.Error{Kind: farm.Invalid, Code: farm.CodeTooBig,
			Hint: "ask for less scratch space, or use an image with a smaller disk",
			Message: fmt.Sprintf("this host can never hold disks of %v; it has %v for disks", want.Rounded(),
				space.Total.Rounded())}
	case space.Short > 0:
		return &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeNoRoom,
			Hint: "ask for less scratch space, or wait until other VMs have ended",
			Message: fmt.Sprintf("disks of %v lack %v of space on this host: the rest is taken, or promised to the "+
				"disks of other VMs", want.Rounded(), space.Short.Rounded())}
	}
	return nil
}

// diskNeed is what a VM's disks may take: all of its scratch disk, and of the overlay of a full image as much as the
// image's size, or what the host lets an overlay have.
func diskNeed(image vmimage.Image, scratch, overlay farm.Bytes) farm.Bytes {
	if image.Kind == vmimage.Kernel {
		return scratch
	}
	bound := disk.OverlayBound(image.VirtualSize)
	if overlay > 0 {
		bound = min(bound, overlay)
	}
	return scratch + bound
}

// partOf is what the VM of a job takes.
func (v *vm) partOf(image vmimage.Image) part {
	r := v.recordNow()
	ours := v.own || r.Worker != nil || r.Caller.Batch.System != "" || r.Caller.admin()
	return part{disks: vmName(v.id), bytes: diskNeed(image, r.Shape.Scratch, v.agent.config().Overlay),
		owner: r.Caller.UID, sums: !ours}
}

// excepted is a caller as exceptions from [limits] see it. They are for those whom the name service knows: while it is
// down the limits of all hold.
func (a *Agent) excepted(c Caller) policy.Who {
	w := policy.Who{UID: c.UID, GIDs: c.allGroups()}
	if known, err := a.namesOf(c); err == nil {
		w.User, w.Groups = known.user.Name, slices.Collect(maps.Values(known.groups))
	} else {
		a.log.Warn("no exception from [limits] by name: the name service does not answer", "uid", c.UID, "error", err)
	}
	return w
}

// partOf is what a cloud VM takes. Its sums are its project's quota.
func (v *fleetVM) partOf(image vmimage.Image, shape farm.Shape) part {
	return part{disks: v.name, bytes: diskNeed(image, shape.Scratch, 0)}
}

// imageOf is the image that a VM was made from; one that is not known any more counts as one without a disk.
func (a *Agent) imageOf(digest string) vmimage.Image {
	image, err := a.images.Get(digest)
	if err != nil {
		return vmimage.Image{Kind: vmimage.Kernel}
	}
	return image
}
