package numa

import (
	"github.com/grange-project/grange/internal/farm"
)

// Plan gives every vCPU of req host threads and binds its memory to nodes near them. Pinned vCPUs get a thread each,
// vCPUs that float get the pool of their node. The same input always gives the same plan.
//
//   - One node where CPUs and memory fit: the one that then has least left. Otherwise the fewest nodes, evenly, near
//     each other. Cells that the request fixes go on nodes of their own, near each other.
//   - Whole free cores before lone siblings, and few L3 caches. An odd last vCPU takes a lone sibling before it breaks
//     a core.
//   - vCPUs of one core, and of one cell that the plan made, have adjacent numbers.
//   - The best page size that has room, and one for all cells where that can be.
//   - Each core of the guest lies in one cell, sockets and cells lie within each other, and no core of the guest has
//     more threads than one of the host. A wanted guest topology that contradicts the cells is refused.
//   - CPUs without memory of their own take it from the nearest node that has any.
//
// Where there is a plan, Plan finds one: it matches cells with nodes and does not guess. Only on hosts with very many
// nodes (maxSets) or with many CPUs without memory (maxSteps) it may give up early, and refuse; for a wanted guest
// topology it tries cells of whole sockets and of whole cores only.
//
// Errors are *farm.Error: farm.CodeBadShape for a request that makes no sense anywhere, farm.CodeTooBig for one that
// this host (or the caller's share of it) cannot hold even when empty, farm.CodeNoRoom for one that does not fit now.
func Plan(room Room, req Request) (farm.Plan, error) {
	wants, err := req.normal()
	if err != nil {
		return farm.Plan{}, err
	}
	v := newView(room, &req, wants)
	if err := v.threadsRefused(room); err != nil {
		return farm.Plan{}, err
	}
	l, ok := v.layout()
	if !ok {
		return farm.Plan{}, refusal{v}.err(room)
	}
	return v.write(l), nil
}
