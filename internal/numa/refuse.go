package numa

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// maxNodesNamed bounds how many nodes a refusal lists.
const maxNodesNamed = 8

// refuse says why there is no layout: never on this host, or not now.
func (v *view) refuse() error {
	empty := newView(v.room.emptied(), v.req)
	if _, ok := empty.layout(); !ok {
		return &farm.Error{Kind: farm.Invalid, Code: farm.CodeTooBig,
			Message: "this host can never hold " + empty.wanted() + ": " + empty.shortages("even when the host is empty"),
			Hint:    empty.tooBigHint()}
	}
	return &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeNoRoom,
		Message: "no room for " + v.wanted() + ": " + v.shortages("now"),
		Hint:    "wait until a VM ends here, ask for less, or try another host"}
}

// emptied is the room of the same host without any VM.
func (r Room) emptied() Room { return NewRoom(r.Topology, r.Reserve, nil) }

func (v *view) wanted() string {
	s := fmt.Sprintf("%s and %v", plural(v.req.VCPUs, "vCPU"), v.req.Memory)
	if v.req.page() != 0 {
		s += fmt.Sprintf(" in pages of %v", v.req.page())
	}
	return s
}

func (v *view) tooBigHint() string {
	switch {
	case v.usableThreads() < v.req.VCPUs && v.req.Allowed.Len() < v.room.Topology.Online.Len():
		return "ask the batch system for more CPUs, or for a smaller VM"
	case v.req.page() != 0 && v.freeEverywhere() < v.units:
		return "set up more huge pages on the host, or ask for ordinary pages"
	}
	return "ask for less, or take a larger host"
}

func (v *view) usableThreads() int {
	sum := 0
	for _, n := range v.nodes {
		sum += n.threads
	}
	return sum
}

// freeEverywhere is the memory, in units, that some CPU could use.
func (v *view) freeEverywhere() int {
	sum, seen := 0, map[int]bool{}
	for _, n := range v.nodes {
		if !seen[n.memory] {
			seen[n.memory] = true
			sum += n.units
		}
	}
	return sum
}

// shortages says what each node lacks for the whole VM, and whether all together lack it too.
func (v *view) shortages(when string) string {
	var parts []string
	for i, n := range v.nodes {
		if i == maxNodesNamed && len(v.nodes) > maxNodesNamed+1 {
			parts = append(parts, fmt.Sprintf("%d more nodes are short as well", len(v.nodes)-i))
			break
		}
		if lacks := v.lacks(n.threads, n.units); lacks != "" {
			parts = append(parts, fmt.Sprintf("node %d lacks %s", n.id, lacks))
		}
	}
	if len(v.nodes) > 1 {
		if lacks := v.lacks(v.usableThreads(), v.freeEverywhere()); lacks != "" {
			parts = append(parts, "all nodes together lack "+lacks)
		} else {
			parts = append(parts, "no set of nodes has the CPUs and the memory side by side")
		}
	}
	if len(v.nodes) == 0 {
		parts = append(parts, "it has no node with CPUs")
	}
	return strings.Join(slices.Compact(parts), "; ") + " (" + when + ")"
}

func (v *view) lacks(threads, units int) string {
	var parts []string
	if short := v.req.VCPUs - threads; short > 0 {
		parts = append(parts, plural(short, "CPU"))
	}
	if short := v.units - units; short > 0 {
		amount := farm.Bytes(short) * v.unit
		if v.req.page() != 0 {
			parts = append(parts, plural(short, "page")+fmt.Sprintf(" of %v", v.req.page()))
		} else {
			parts = append(parts, fmt.Sprintf("%v of memory", amount))
		}
	}
	return strings.Join(parts, " and ")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
