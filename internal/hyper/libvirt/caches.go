package libvirt

import (
	"math/bits"

	"github.com/grange-project/grange/internal/farm"
)

// sharesAlike reports whether the guest may be told of the host's caches as they are. Their sizes are worth having:
// libraries choose how they copy and multiply by them. But the processor counts who shares a cache in its own numbers
// of threads, and QEMU hands that on as it is: the guest takes threads for sharers whose APIC IDs, as QEMU gives them
// out, differ in no more than so many low bits. So it is right only where these are, by the plan's pins, the vCPUs that
// share the cache on the host.
func sharesAlike(host farm.Topology, p farm.Plan) bool {
	if !dedicated(p) || len(host.Cores) == 0 || len(host.L3) == 0 {
		return false
	}
	var cores []farm.CPUSet
	for _, c := range host.Cores {
		cores = append(cores, c.Threads)
	}
	return groupedAlike(cores, p) && groupedAlike(host.L3, p)
}

// groupedAlike reports whether vCPUs share one of a level's caches on the host where the guest would believe so. The
// largest group has all its threads: the processor counts those that are offline, too.
func groupedAlike(caches []farm.CPUSet, p farm.Plan) bool {
	sharers := 0
	of := map[int]int{} // caches by CPU
	for i, cache := range caches {
		sharers = max(sharers, cache.Len())
		for cpu := range cache.All() {
			of[cpu] = i
		}
	}
	shift := width(sharers)
	guests := map[int]int{} // caches of the host by those of the guest
	hosts := map[int]int{}
	for i, pin := range p.VCPUs {
		cache, ok := of[pin.List()[0]]
		if !ok {
			return false
		}
		group := apicID(i, p.Guest) >> shift
		if other, ok := guests[group]; ok && other != cache {
			return false
		}
		if other, ok := hosts[cache]; ok && other != group {
			return false
		}
		guests[group], hosts[cache] = cache, group
	}
	return true
}

// apicID is the number that QEMU gives a vCPU: threads, cores and sockets have whole bits each
// (x86_apicid_from_topo_ids).
func apicID(vcpu int, g farm.GuestTopology) int {
	thread, core, socket := vcpu%g.Threads, vcpu/g.Threads%g.Cores, vcpu/g.Threads/g.Cores
	return thread | core<<width(g.Threads) | socket<<(width(g.Threads)+width(g.Cores))
}

// width is how many bits number n things.
func width(n int) int { return bits.Len(uint(max(n-1, 0))) }
