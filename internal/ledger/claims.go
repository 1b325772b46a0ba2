package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// claims are what one host has, and what of it is claimed by whom. Whoever calls holds the ledger's lock.
type claims struct {
	topology farm.Topology
	reserve  numa.Reserve
	grants   map[string]grant     // by the ID of the VM
	keys     map[string]string    // of VMs for batch jobs, by ID: farm.Allotment.Key
	charges  map[string]Charge    // by ID
	cloud    map[string]bool      // IDs of grants that are cloud VMs
	metal    map[string]farm.Plan // what batch systems have given, by farm.Allotment.Key
	private  func() bool          // users may not know what others hold
	confined map[string]farm.Plan // what jobs of Host.Jobs hold, by farm.Allotment.Key, at the last look
}

func newClaims(t farm.Topology, reserve numa.Reserve) *claims {
	return &claims{topology: t, reserve: reserve, grants: map[string]grant{}, keys: map[string]string{},
		charges: map[string]Charge{}, cloud: map[string]bool{}, metal: map[string]farm.Plan{}}
}

// grant is what one VM holds.
type grant struct {
	holder string // for people: "grange-1a2b3c4d (alice: make test)"
	plan   farm.Plan
}

func (b *claims) forget(id string) {
	delete(b.grants, id)
	delete(b.keys, id)
	delete(b.charges, id)
	delete(b.cloud, id)
}

// room is what is left for a VM of the batch job key, "" for any other: what its batch system set aside for that job is
// its own.
func (b *claims) room(key string) numa.Room {
	return numa.NewRoom(b.topology, b.reserve, b.plans(key, func(string) bool { return true }))
}

// plans are what is held, of VMs what those hold that counts says. What batch systems hold for a VM that does not count
// does not, either.
func (b *claims) plans(key string, counts func(id string) bool) []farm.Plan {
	plans := make([]farm.Plan, 0, len(b.grants)+len(b.metal))
	inVMs, passed := map[string]bool{}, map[string]bool{}
	for id, g := range b.grants {
		if counts(id) {
			plans = append(plans, g.plan)
		} else if of := b.keys[id]; of != "" {
			passed[of] = true
		}
		inVMs[b.keys[id]] = true
	}
	for of, plan := range b.metal {
		if of == key || passed[of] {
			continue
		}
		if inVMs[of] {
			plan.Cells = nil // the VM's memory is that job's
		}
		plans = append(plans, plan)
	}
	return append(plans, b.besides(key, inVMs, passed)...)
}

// holders returns who holds what, as somebody may know it. Holders that may not be named are added up.
func (b *claims) holders(by sight) string {
	var lines []string
	var rest others
	for key, plan := range b.onHost() {
		if !by.all && key != by.key {
			rest.add(plan)
			continue
		}
		lines = append(lines, fmt.Sprintf("%s on the host holds CPUs %v and %v", key, plan.Held(), plan.Memory()))
	}
	for id, g := range b.grants {
		if !b.visible(by, id) {
			rest.add(g.plan)
			continue
		}
		lines = append(lines, fmt.Sprintf("%s holds CPUs %v and %v", g.holder, g.plan.Held(), g.plan.Memory()))
	}
	if rest.any {
		lines = append(lines, rest.String())
	}
	if len(lines) == 0 {
		return "nobody holds anything"
	}
	slices.Sort(lines)
	const most = 8
	if len(lines) > most {
		lines = append(lines[:most], fmt.Sprintf("and %d more", len(lines)-most))
	}
	return strings.Join(lines, ", ")
}

// besides are the plans of confined jobs that a VM of the batch job key, "" for any other, has to leave alone. A job
// that its batch system confines itself goes where the batch system puts it: that knows what it has given to its other
// jobs, and may let two of them, of which one is suspended, share CPUs. Those that are passed over are left out.
func (b *claims) besides(key string, inVMs, passed map[string]bool) []farm.Plan {
	own := b.confined[key]
	var plans []farm.Plan
	for of, plan := range b.confined {
		if _, claimed := b.metal[of]; claimed || of == key || passed[of] {
			continue
		}
		if inVMs[of] || own.Cells != nil {
			plan.Cells = nil
		}
		if !own.Extra.Empty() {
			plan.Extra = farm.CPUSet{}
		}
		plans = append(plans, plan)
	}
	return plans
}

// onHost returns what jobs hold that run on the host, and those that batch systems confine and that have no VM.
func (b *claims) onHost() map[string]farm.Plan {
	inVMs := map[string]bool{}
	for _, key := range b.keys {
		inVMs[key] = true
	}
	all := maps.Clone(b.metal)
	for key, plan := range b.confined {
		if _, claimed := b.metal[key]; !claimed && !inVMs[key] {
			all[key] = plan
		}
	}
	return all
}

// heldByVMs says, for people, which of these CPUs are held by VMs other than that of the batch job key.
func (b *claims) heldByVMs(key string, cpus farm.CPUSet) (lines []string) {
	for id, g := range b.grants {
		if both := g.plan.Held().And(cpus); !both.Empty() && b.keys[id] != key {
			lines = append(lines, fmt.Sprintf("CPUs %v are held by %s", both, g.holder))
		}
	}
	slices.Sort(lines)
	return lines
}

func (b *claims) enterCloud(id, holder, key string, c Charge, plan farm.Plan) {
	b.charges[id] = c
	b.grants[id] = grant{holder, plan}
	b.cloud[id] = true
	if delete(b.keys, id); key != "" {
		b.keys[id] = key
	}
}

// heldByUser is what all VMs of a user hold that count for it, but for the VM id.
func (b *claims) heldByUser(uid uint32, id string) (has held) {
	for other, g := range b.grants {
		if c := b.charges[other]; other != id && c.Limited && c.UID == uid {
			h := heldBy(g.plan, c)
			has.cpus, has.bytes, has.disks = has.cpus+h.cpus, has.bytes+h.bytes, has.disks+h.disks
			has.rates = has.rates.Plus(h.rates)
		}
	}
	return has
}

// promised are the disks at a place of all that has a grant, and of id.
func (b *claims) promised(at, id string) map[string]farm.Bytes {
	out := map[string]farm.Bytes{}
	for other, c := range b.charges {
		if _, ok := b.grants[other]; (ok || other == id) && c.on(at) > 0 {
			out[c.Disks] = c.on(at)
		}
	}
	return out
}
