package generate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// Machines makes up so many machines, with and without memory and pools of huge pages on their nodes, and places VMs on
// each until several are refused. Each plan keeps the rules, and each refusal is right.
func Machines(count int) Result {
	var r Result
	for seed := range count {
		rnd := rand.New(rand.NewPCG(uint64(seed), 39))
		host := machine(rnd)
		errs := fill(rnd, host)
		r.add(errs, func() string { return fmt.Sprintf("machine %d: %s", seed, machineText(host)) })
	}
	return r
}

// machine is a host of one to four nodes, each with CPUs or memory, and the first with both.
func machine(r *rand.Rand) farm.Topology {
	var t farm.Topology
	cpu, threads, nodesInSocket := 0, pick(r, 1, 2, 2, 4), pick(r, 1, 1, 2)
	hybrid, old := r.IntN(8) == 0, r.IntN(2) == 0
	for id := range 1 + r.IntN(4) {
		n := farm.Node{ID: id}
		if id == 0 || r.IntN(3) > 0 {
			n.Memory = farm.Bytes(1+r.IntN(16)) * 512 * farm.MiB
		}
		n.Pages = pools(r, n.Memory, old)
		var all []int
		for range number(id == 0) + r.IntN(5) {
			smt := threads
			if hybrid && r.IntN(2) == 0 {
				smt = 1
			}
			var core []int
			for range smt {
				core = append(core, cpu)
				cpu++
			}
			all = append(all, core...)
			t.Cores = append(t.Cores, farm.Core{Socket: id / nodesInSocket, Node: id, Threads: farm.NewCPUSet(core...)})
		}
		n.CPUs, n.Free = farm.NewCPUSet(all...), n.Memory
		if n.CPUs.Empty() && n.Memory == 0 {
			continue
		}
		t.Nodes = append(t.Nodes, n)
		t.Online = t.Online.Or(n.CPUs)
		if !n.CPUs.Empty() {
			t.L3 = append(t.L3, n.CPUs)
		}
	}
	t.Sockets = socketsOf(t.Cores)
	if r.IntN(3) > 0 {
		t.Distance = distances(r, len(t.Nodes))
	}
	return t
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// pools are a node's huge pages. On a node without memory, newer kernels show pools with no page, and older ones none.
func pools(r *rand.Rand, memory farm.Bytes, old bool) []farm.HugePages {
	if memory == 0 && old || r.IntN(4) == 0 {
		return nil
	}
	small := farm.HugePages{Size: 2 * farm.MiB}
	large := farm.HugePages{Size: farm.GiB}
	if memory > 0 {
		small.Total = pick(r, 0, r.IntN(int(memory/(4*farm.MiB))))
		large.Total = r.IntN(int(memory/(2*farm.GiB)) + 1)
	}
	small.Free, large.Free = small.Total, large.Total
	return []farm.HugePages{small, large}
}

func socketsOf(cores []farm.Core) (out []farm.Socket) {
	for _, c := range cores {
		i := slices.IndexFunc(out, func(s farm.Socket) bool { return s.ID == c.Socket })
		if i < 0 {
			i, out = len(out), append(out, farm.Socket{ID: c.Socket})
		}
		out[i].CPUs = out[i].CPUs.Or(c.Threads)
	}
	return out
}

func distances(r *rand.Rand, n int) [][]int {
	out := make([][]int, n)
	for i := range out {
		out[i] = make([]int, n)
		for j := range i {
			out[i][j] = pick(r, 12, 21, 21, 31)
			out[j][i] = out[i][j]
		}
		out[i][i] = 10
	}
	return out
}

// maxRefused ends a machine, and maxPlaced as well.
const maxRefused, maxPlaced = 4, 12

// fill places VMs on a host, and judges each answer.
func fill(r *rand.Rand, host farm.Topology) (errs []error) {
	l := newLedger(host)
	room := numa.NewRoom(host, numa.Reserve{}, nil)
	for refused, placed := 0, 0; refused < maxRefused && placed < maxPlaced && len(errs) == 0; {
		req := wish(r, host)
		plan, err := numa.Plan(room, req)
		if err != nil {
			refused++
			errs = append(reason(err), l.refusal(req, err)...)
		} else {
			placed++
			errs = append(l.plan(req, plan), l.wasted(req, plan)...)
			l.take(plan)
			if room, err = room.Take(plan); err != nil {
				errs = append(errs, fmt.Errorf("the room does not take the plan: %w", err))
			}
		}
		for i := range errs {
			errs[i] = fmt.Errorf("%+v: %w", req, errs[i])
		}
	}
	return errs
}

// wish is a request for pinned vCPUs; some want a topology of the guest.
func wish(r *rand.Rand, host farm.Topology) numa.Request {
	per := farm.Bytes(1+r.IntN(16)) * 64 * farm.MiB
	req := numa.Request{VCPUs: pick(r, 1, 2, 2, 3, 4, 4, 5, 6, 6, 8, 12), Allowed: host.Online}
	req.Memory = per * farm.Bytes(req.VCPUs)
	req.Pages = pick(r, nil, nil, []farm.Bytes{2 * farm.MiB}, []farm.Bytes{farm.GiB, 2 * farm.MiB, 0},
		[]farm.Bytes{2 * farm.MiB, 0})
	if r.IntN(4) == 0 {
		req.Cells = 1 + r.IntN(2)
	}
	if r.IntN(3) == 0 {
		req.Guest = farm.GuestTopology{Sockets: pick(r, 1, 2, 3), Threads: pick(r, 1, 2, 4)}
		req.Guest.Cores = max(req.VCPUs/req.Guest.Sockets/req.Guest.Threads, 1)
		if req.Guest.Sockets*req.Guest.Cores*req.Guest.Threads != req.VCPUs {
			req.Guest = farm.GuestTopology{}
		}
	}
	if req.Cells > 0 && req.VCPUs%req.Cells != 0 {
		req.Cells = 0
	}
	return req
}

// oneNode reports whether one node with memory has the CPUs and the memory of the request left.
func (l *ledger) oneNode(req numa.Request) bool {
	for _, n := range l.host.Nodes {
		if n.Memory == 0 || l.free.Common(n.CPUs) < req.VCPUs {
			continue
		}
		for _, size := range sizesOf(req) {
			if l.have(n.ID, size) >= req.Memory && req.Memory%max(size, 2*farm.MiB) == 0 {
				return true
			}
		}
	}
	return false
}

// wasted judges what a plan uses though there is better: a VM that fits beside the memory of one node is there, and
// no CPU without memory is used where CPUs with memory enough stay idle.
func (l *ledger) wasted(req numa.Request, p farm.Plan) (errs []error) {
	remote := slices.ContainsFunc(p.Cells, func(c farm.GuestCell) bool { return c.Remote })
	if req.Cells != 2 && l.oneNode(req) && (len(p.Cells) > 1 || remote) {
		errs = append(errs, fmt.Errorf("one node has room, the plan has cells %+v", p.Cells))
	}
	if remote && req.Cells == 0 && req.Guest == (farm.GuestTopology{}) && l.besideMemory(req) {
		errs = append(errs, fmt.Errorf("CPUs beside memory are enough, the plan has cells %+v", p.Cells))
	}
	return errs
}

// besideMemory reports whether nodes that each have the memory of the whole VM left, in one page size, have CPUs enough
// together.
func (l *ledger) besideMemory(req numa.Request) bool {
	for _, size := range sizesOf(req) {
		cpus := 0
		for _, n := range l.host.Nodes {
			if l.have(n.ID, size) >= req.Memory {
				cpus += l.free.Common(n.CPUs)
			}
		}
		unit := max(size, 2*farm.MiB)
		if cpus >= req.VCPUs && req.Memory%unit == 0 && req.Memory/unit >= farm.Bytes(req.VCPUs) {
			return true
		}
	}
	return false
}

// refusal judges a refusal: one node does not have room; nodes that each have the memory do not have the CPUs; where
// the host can never hold the VM, that is so when it is empty.
func (l *ledger) refusal(req numa.Request, err error) (errs []error) {
	code := codeOf(err)
	if code == farm.CodeBadShape || req.Guest.Threads > l.threads() {
		return nil
	}
	now := l
	if code == farm.CodeTooBig {
		now = newLedger(l.host)
	}
	if req.Cells != 2 && now.oneNode(req) {
		errs = append(errs, fmt.Errorf("refused, and one node has room: %w", err))
	}
	if req.Cells == 0 && req.Guest == (farm.GuestTopology{}) && now.besideMemory(req) {
		errs = append(errs, fmt.Errorf("refused, and nodes have room: %w", err))
	}
	if req.Cells != 2 && now.borrowed(req) {
		errs = append(errs, fmt.Errorf("refused, and a node without memory has the CPUs: %w", err))
	}
	return errs
}

// borrowed reports whether a node without memory has the CPUs of the request left, and one of the nearest with memory
// that memory.
func (l *ledger) borrowed(req numa.Request) bool {
	for _, n := range l.host.Nodes {
		if n.Memory > 0 || l.free.Common(n.CPUs) < req.VCPUs {
			continue
		}
		for _, size := range sizesOf(req) {
			for _, giver := range l.host.Nodes {
				if giver.Memory > 0 && l.distance(n.ID, giver.ID) == l.nearest(n.ID) &&
					l.have(giver.ID, size) >= req.Memory && req.Memory%max(size, 2*farm.MiB) == 0 {
					return true
				}
			}
		}
	}
	return false
}

func machineText(t farm.Topology) string {
	text := ""
	for _, n := range t.Nodes {
		text += fmt.Sprintf("node %d CPUs %q %v", n.ID, n.CPUs, n.Memory)
		for _, p := range n.Pages {
			text += fmt.Sprintf(" %d × %v", p.Total, p.Size)
		}
		text += "; "
	}
	return fmt.Sprintf("%sdistances %v", text, t.Distance)
}

func codeOf(err error) farm.Code {
	if own := new(farm.Error); errors.As(err, &own) {
		return own.Code
	}
	return ""
}
