package broker

import (
	"strings"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
)

// nodesOf returns the node of each host in the batch system, by the host's ID.
//
// A host has the node that its agent is configured with (batch.node), or else the node with its own name, with or
// without the domain. The configuration of a host never gives it a node with the name of another host: it would take
// over the jobs of that host. A node that several hosts are configured with belongs to none of them.
func nodesOf(hosts []farm.Host, nodes []batch.Node) map[string]batch.Node {
	byName := map[string]batch.Node{}
	for _, n := range nodes {
		byName[n.Name] = n
	}
	called, claims := map[string]bool{}, map[string]int{}
	for _, h := range hosts {
		if renamed(h) {
			claims[h.Facts.BatchNode]++
			continue
		}
		for _, name := range namesOf(h) {
			called[name] = true
		}
	}
	found := map[string]batch.Node{}
	for _, h := range hosts {
		node := h.Facts.BatchNode
		if n, ok := byName[node]; ok && renamed(h) && !called[node] && claims[node] == 1 {
			found[h.ID] = n
			continue
		}
		for _, name := range namesOf(h) {
			if n, ok := byName[name]; ok && (claims[name] == 0 || !renamed(h)) {
				found[h.ID] = n
				break
			}
		}
	}
	return found
}

// namesOf returns the names that a batch system may have for a host; many leave the domain out.
func namesOf(h farm.Host) []string {
	short, _, _ := strings.Cut(h.Name, ".")
	return []string{h.Name, short}
}

// renamed reports whether the batch system calls a host by another name than its own.
func renamed(h farm.Host) bool {
	names := namesOf(h)
	node := h.Facts.BatchNode
	return node != "" && node != names[0] && node != names[1]
}
