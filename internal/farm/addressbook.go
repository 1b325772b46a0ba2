package farm

import (
	"net/netip"
	"slices"
)

// AddressBook remembers which node had which address last. A batch system goes on sending to the address of a node that
// it has given up: orders to end a job reached the same job where it ran again, when the new node had the old one's
// address. So a node keeps its address, and another node gets it only where the pool has no other. What an agent
// forgets at its end is no more than that.
type AddressBook struct {
	last []nodeAddress // the latest at the end
}

type nodeAddress struct {
	node    string
	address netip.Prefix
}

// Lease finds an address that is not taken; ok is false when all are.
func (b *AddressBook) Lease(pool AddressPool, node string, taken map[netip.Addr]bool) (address netip.Prefix,
	ok bool) {
	old := slices.IndexFunc(b.last, func(n nodeAddress) bool { return n.node == node })
	others := map[netip.Addr]bool{}
	for i, n := range b.last {
		if i != old {
			others[n.address.Addr()] = true
		}
	}
	free := func(p netip.Prefix) bool {
		_, ok := pool.Lease(func(q netip.Prefix) bool { return q != p || taken[q.Addr()] })
		return ok
	}
	if old >= 0 && free(b.last[old].address) && !others[b.last[old].address.Addr()] {
		address, ok = b.last[old].address, true
	} else {
		address, ok = pool.Lease(func(p netip.Prefix) bool { return taken[p.Addr()] || others[p.Addr()] })
	}
	for i := 0; !ok && i < len(b.last); i++ { // the longest unused
		if address = b.last[i].address; free(address) {
			ok = true
		}
	}
	if !ok {
		return netip.Prefix{}, false
	}
	b.last = slices.DeleteFunc(b.last, func(n nodeAddress) bool { return n.node == node || n.address == address })
	b.last = append(b.last, nodeAddress{node, address})
	return address, true
}
