package ledger

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/policy"
)

// Charge is what a VM takes of the host beside its plan, and whom it is charged to.
type Charge struct {
	Disks string     // the name of their directory; a second attempt's begins with it
	Area  string     // of their files: JobFiles, CloudFiles
	Bytes farm.Bytes // that their files may take
	// what their volumes may, by the place of volumes
	Volumes map[string]farm.Bytes
	// that it may receive and send
	Bandwidth farm.Bandwidth
	UID       uint32 // that it counts for
	// the user who may know of it, where VMs are private; 0: root alone
	Owner uint32
	// the VM counts for what one user may hold: an ordinary account asked for it outside of batch jobs, which their
	// batch system confines
	Limited bool
	Who     policy.Who // the owner as exceptions see it
}

// Areas of files, as places of disks.
const (
	JobFiles   = ""
	CloudFiles = "cloud"
)

// isFiles reports whether an area has files, and is not a volume group or thin pool.
func isFiles(at string) bool { return at == JobFiles || at == CloudFiles }

// on is what is charged to a place.
func (c Charge) on(at string) farm.Bytes {
	if isFiles(at) {
		if c.Area != at {
			return 0
		}
		return c.Bytes
	}
	return c.Volumes[at]
}

// all is what is charged everywhere.
func (c Charge) all() farm.Bytes {
	sum := c.Bytes
	for _, size := range c.Volumes {
		sum += size
	}
	return sum
}

// SetCharge notes what a VM takes beside its plan, before it claims anything.
func (l *Ledger) SetCharge(id string, c Charge) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claims.charges[id] = c
}

// Charge returns what was noted of a VM; the zero Charge where nothing was.
func (l *Ledger) Charge(id string) Charge {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.claims.charges[id]
}

// SetLimits changes what one user may hold, and what of the file system of disks is not for disks. What is granted
// stays granted.
func (l *Ledger) SetLimits(c policy.Limits, keep farm.Bytes) {
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
	rates farm.Bandwidth
}

func heldBy(p farm.Plan, c Charge) held {
	return held{max(len(p.VCPUs), p.Held().Len()), p.Memory(), c.all(), c.Bandwidth}
}

// beside refuses what concerns nobody but who asks: more than one user may hold, more than the network carries, and
// disks that find no space. Nobody else waits behind it.
func (l *Ledger) beside(id string, want held) error {
	if err := l.withinSums(id, want); err != nil {
		return err
	}
	if err := l.carried(id, l.claims.charges[id].Bandwidth); err != nil {
		return err
	}
	return l.spaceFor(id)
}

// withinSums holds a wish, and what its user has, against what one user may have.
func (l *Ledger) withinSums(id string, want held) error {
	mine := l.claims.charges[id]
	if !mine.Limited {
		return nil
	}
	has, most := l.claims.heldByUser(mine.UID, id), l.mostOf(mine.Who)
	for _, s := range []sum{
		{"CPUs", uint64(has.cpus), uint64(want.cpus), uint64(most.cpus),
			func(n uint64) string { return fmt.Sprint(n) }},
		{"of memory", uint64(has.bytes), uint64(want.bytes), uint64(most.bytes), sizeText},
		{"of disk space", uint64(has.disks), uint64(want.disks), uint64(most.disks), sizeText},
		{"of bandwidth in", uint64(has.rates.In), uint64(want.rates.In), uint64(most.rates.In), rateText},
		{"of bandwidth out", uint64(has.rates.Out), uint64(want.rates.Out), uint64(most.rates.Out), rateText},
	} {
		if err := s.check(); err != nil {
			return err
		}
	}
	return nil
}

// sum is what a user has of one thing, wants more of it, and may have in all.
type sum struct {
	what             string
	has, want, limit uint64
	text             func(uint64) string
}

func (s sum) check() error {
	switch {
	case s.want == 0:
		return nil
	case s.want > s.limit:
		return &farm.Error{Kind: farm.Invalid, Code: CodeUserLimit,
			Hint: "ask for less; [limits] in the agent's configuration says what a user may have",
			Message: fmt.Sprintf("you may have %s %s on this host at once; this VM would take %s", s.text(s.limit),
				s.what, s.text(s.want))}
	case s.has+s.want > s.limit:
		return &farm.Error{Kind: farm.NoCapacity, Code: CodeUserLimit,
			Hint: "wait until VMs of yours have ended; [limits] in the agent's configuration says what a user may have",
			Message: fmt.Sprintf("your VMs here have %s %s, and you may have %s at once; this VM would take %s",
				s.text(s.has), s.what, s.text(s.limit), s.text(s.want))}
	}
	return nil
}

func sizeText(n uint64) string { return farm.Bytes(n).Rounded().String() }

func rateText(n uint64) string { return farm.Rate(n).String() + "bit/s" }

// mostOf is what a user may hold of this host.
func (l *Ledger) mostOf(who policy.Who) held {
	limits := l.limits.Of(who)
	room := numa.NewRoom(l.claims.topology, l.claims.reserve, nil)
	var memory farm.Bytes
	for _, n := range room.Nodes {
		memory += n.Memory
		for size, count := range n.Pages {
			memory += size * farm.Bytes(count)
		}
	}
	carries := farm.Rate(0)
	if l.host.Bandwidth != nil {
		carries = l.host.Bandwidth()
	}
	most := farm.Rate(limits.Bandwidth.Of(uint64(carries)))
	if carries == 0 { // which carried refuses
		most = math.MaxUint64
	}
	out := held{int(limits.CPUs.Of(uint64(room.Free.Len()))), farm.Bytes(limits.Memory.Of(uint64(memory))), 0,
		farm.Bandwidth{In: most, Out: most}}
	if space, err := l.space(JobFiles, ""); err == nil {
		out.disks = farm.Bytes(limits.Disk.Of(uint64(space.Pool)))
	}
	return out
}

// space is a place of disks beside what has a grant, and id; of files, less what the host keeps for itself.
func (l *Ledger) space(at, id string) (farm.DiskSpace, error) {
	if l.host.Space == nil {
		return farm.DiskSpace{}, nil
	}
	s, err := l.host.Space(at, func(at string) map[string]farm.Bytes { return l.claims.promised(at, id) })
	if !isFiles(at) {
		return s, err
	}
	if short := l.keep; s.Free >= short {
		s.Free -= short
	} else {
		s.Kept = short - s.Free
		s.Short, s.Free = s.Short+s.Kept, 0
	}
	s.Total, s.Pool = s.Total-min(s.Total, l.keep), s.Pool-min(s.Pool, l.keep)
	return s, err
}

// DiskSpace returns what disks of further VMs may have at a place.
func (l *Ledger) DiskSpace(at string) (farm.DiskSpace, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.space(at, "")
}

// spaceFor refuses disks that would not find the space that they may take.
func (l *Ledger) spaceFor(id string) error {
	c := l.claims.charges[id]
	if err := spaceAt(l, c.Area, id, c.Bytes); err != nil {
		return err
	}
	for _, at := range slices.Sorted(maps.Keys(c.Volumes)) {
		if err := spaceAt(l, at, id, c.Volumes[at]); err != nil {
			return err
		}
	}
	return nil
}

func spaceAt(l *Ledger, at, id string, want farm.Bytes) error {
	if want == 0 || l.host.Space == nil {
		return nil
	}
	on := ""
	if !isFiles(at) {
		on = " of " + at
	}
	space, err := l.space(at, id)
	switch {
	case err != nil:
		return err
	case want > space.Total:
		return &farm.Error{Kind: farm.Invalid, Code: farm.CodeTooBig,
			Hint: "ask for less scratch space, or use an image with a smaller disk",
			Message: fmt.Sprintf("this host can never hold disks of %v; it has %v for disks%s", want.Rounded(),
				space.Total.Rounded(), on)}
	case space.Short > 0:
		return &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeNoRoom,
			Hint: "ask for less scratch space, or wait until other VMs have ended",
			Message: fmt.Sprintf("disks of %v lack %v of space%s on this host: the rest is taken, or promised to the "+
				"disks of other VMs", want.Rounded(), space.Short.Rounded(), on)}
	}
	return nil
}
