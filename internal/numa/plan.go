package numa

import (
	"fmt"
	"math/bits"

	"github.com/grange-project/grange/internal/farm"
)

// MaxVCPUs bounds one VM. QEMU's q35 machine stops at 1024 before version 8.1 raised it.
const MaxVCPUs = 1024

// libvirt rounds every guest cell up to 1 MiB, so a finer size would take more than was claimed; cells are cut at 2 MiB where
// that divides the size, for the guest's transparent huge pages.
const (
	fineUnit  = farm.MiB
	roundUnit = 2 * farm.MiB
)

// Plan pins every vCPU of req to a host thread of its own and binds its memory to nodes near them. The same input always gives
// the same plan.
//
//   - One node where CPUs and memory fit: the one that then has least left. Otherwise the fewest nodes, evenly, near each other.
//   - Whole free cores before lone siblings, and few L3 caches. An odd last vCPU takes a lone sibling before it breaks a core.
//   - vCPUs of one core, and of one cell, have adjacent numbers.
//
// Errors are *farm.Error: farm.CodeBadShape for a request that makes no sense anywhere, farm.CodeTooBig for one that this host
// (or the caller's share of it) cannot hold even when empty, farm.CodeNoRoom for one that does not fit now.
func Plan(room Room, req Request) (farm.Plan, error) {
	if err := req.validate(); err != nil {
		return farm.Plan{}, err
	}
	v := newView(room, req)
	l, ok := v.layout()
	if !ok {
		return farm.Plan{}, v.refuse()
	}
	return v.plan(l), nil
}

func (r Request) validate() error {
	bad := func(hint, format string, args ...any) error {
		return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadShape, Message: fmt.Sprintf(format, args...), Hint: hint}
	}
	page := r.page()
	if page == 0 {
		page = fineUnit
	}
	switch {
	case r.VCPUs < 1 || r.VCPUs > MaxVCPUs:
		return bad(fmt.Sprintf("ask for 1 to %d vCPUs", MaxVCPUs), "a VM cannot have %d vCPUs", r.VCPUs)
	case r.Memory == 0:
		return bad("ask for example for 2G of memory", "a VM cannot be without memory")
	case bits.OnesCount64(uint64(page)) != 1 || page < 4*farm.KiB:
		return bad("take a page size of the host, for example 2M or 1G, or none", "%v is not a page size", r.page())
	case r.Memory < page:
		return bad(fmt.Sprintf("ask for at least %v", page), "%v of memory is less than one page of %v", r.Memory, page)
	case r.Memory%page != 0:
		return bad(fmt.Sprintf("ask for %v", (r.Memory/page+1)*page), "%v of memory is not a multiple of %v", r.Memory, page)
	case r.Memory > 1<<62:
		return bad("ask for less", "%v of memory is more than any host has", r.Memory)
	}
	return r.validateGuest(bad)
}

func (r Request) validateGuest(bad func(hint, format string, args ...any) error) error {
	g := r.Guest
	if g == (farm.GuestTopology{}) {
		return nil
	}
	const hint = "make sockets × cores × threads equal to the number of vCPUs, or leave all three out"
	for _, n := range []int{g.Sockets, g.Cores, g.Threads} {
		if n < 1 || n > r.VCPUs {
			return bad(hint, "a guest of %d sockets × %d cores × %d threads does not have %d vCPUs", g.Sockets, g.Cores, g.Threads, r.VCPUs)
		}
	}
	if g.Sockets*g.Cores*g.Threads != r.VCPUs {
		return bad(hint, "a guest of %d sockets × %d cores × %d threads does not have %d vCPUs", g.Sockets, g.Cores, g.Threads, r.VCPUs)
	}
	return nil
}

// unit is the amount of memory that cells are cut in.
func (r Request) unit() farm.Bytes {
	switch {
	case r.page() != 0:
		return r.page()
	case r.Memory%roundUnit == 0:
		return roundUnit
	}
	return fineUnit
}

func (r Request) page() farm.Bytes {
	if len(r.Pages) == 0 {
		return 0
	}
	return r.Pages[0]
}
