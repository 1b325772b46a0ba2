package tuning

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// bootPool is a request for huge pages on the command line.
type bootPool struct {
	size  farm.Bytes
	total int
	nodes map[int]int // by node, where the line says so: hugepages=0:24,1:24
}

// droppedPages is a part of a command line about huge pages that the kernel does not follow.
type droppedPages struct{ wanted, got string }

const defaultHugePage = 2 * farm.MiB // of x86 where no default_hugepagesz is given

// bootPools returns the huge pages that a host's kernel takes from a command line.
func bootPools(h farm.HostFacts, line string) []bootPool {
	pools, _ := readPages(h, line)
	return pools
}

// pageReader reads a command line as the kernel's mm/hugetlb.c does: from left to right, with what was read last as
// the meaning of what follows.
type pageReader struct {
	h        farm.HostFacts
	pools    []bootPool
	dropped  []droppedPages
	size     farm.Bytes // that the next number is for; 0 before any size
	sizes    []farm.Bytes
	refused  string // the parameter before, whose size the kernel does not take
	reason   string // for that, where it is not told yet
	numbered bool   // a number was read since the last size
	standard farm.Bytes
	named    bool // by default_hugepagesz
	early    int  // index of the pool whose number came before any size, plus one
}

// readPages returns what the kernel takes from a command line, and what it drops.
func readPages(h farm.HostFacts, line string) ([]bootPool, []droppedPages) {
	r := pageReader{h: h, standard: kernelPage(h)}
	for _, p := range bootParams(line) {
		switch p.name {
		case "hugepagesz":
			r.tell("")
			r.pageSize(p)
		case "default_hugepagesz":
			r.tell("")
			r.standardSize(p)
		case "hugepages":
			r.number(p.value)
		}
	}
	r.tell("")
	if r.early > 0 {
		r.pools[r.early-1].size = r.standard
	}
	return r.pools, r.dropped
}

func (r *pageReader) drop(wanted, got string) {
	r.dropped = append(r.dropped, droppedPages{wanted, got})
}

// tell reports a size that the kernel does not have, with the number that goes with it.
func (r *pageReader) tell(number string) {
	if r.reason == "" {
		return
	}
	if number != "" {
		number = " " + number
	}
	r.drop("a page size that this kernel has", r.refused+number+": "+r.reason)
	r.reason = ""
}

// take makes a size the one that numbers are for. It reports whether the kernel has it.
func (r *pageReader) take(p bootParam) (size farm.Bytes, ok bool) {
	size, r.refused = memparse(p.value), p.name+"="+p.value
	switch {
	case size == 0:
		r.reason = "this is no page size, and the kernel drops it"
	case !kernelHasPage(r.h, size):
		r.reason = fmt.Sprintf("this kernel has no pages of %s, and drops it", pageName(size))
	default:
		r.size, r.refused, r.numbered = size, "", false
		return size, true
	}
	return size, false
}

func (r *pageReader) pageSize(p bootParam) {
	old := r.size
	size, ok := r.take(p)
	if !ok {
		return
	}
	// the default size may be named again as long as it has no number
	numbered := slices.ContainsFunc(r.pools, func(b bootPool) bool { return b.size == size })
	if slices.Contains(r.sizes, size) && (!r.named || size != r.standard || numbered) {
		r.size, r.refused = old, p.name+"="+p.value
		r.drop("hugepagesz="+p.value+" once", "hugepagesz="+p.value+" is there twice: the kernel drops the second one")
		return
	}
	r.sizes = append(r.sizes, size)
}

func (r *pageReader) standardSize(p bootParam) {
	if r.named {
		r.refused = p.name + "=" + p.value
		r.drop(p.name+" once", r.refused+" is the second: the kernel drops it")
		return
	}
	if size, ok := r.take(p); ok {
		r.standard, r.named = size, true
		r.sizes = append(r.sizes, size)
	}
}

// number reads the value of hugepages.
func (r *pageReader) number(text string) {
	name := "hugepages=" + text
	switch {
	case r.reason != "":
		r.tell(name)
		r.refused = "" // the kernel takes a number after this one for the size before
		return
	case r.refused != "":
		r.drop("each number after a size that the kernel takes",
			r.refused+" "+name+": the kernel drops the number with the size")
		r.refused = ""
		return
	case r.numbered:
		what := "the default size"
		if r.size > 0 {
			what = pageName(r.size)
		}
		r.drop("one number for a size", fmt.Sprintf(
			"hugepages= is there twice for pages of %s: the kernel drops the second, %s", what, name))
		return
	}
	pool, ok := r.count(text)
	if !ok {
		r.drop("a number of pages, or one for each node as 0:N,1:N", name+" is no number: the kernel drops it")
		return
	}
	r.numbered, pool.size = true, r.size
	r.pools = append(r.pools, pool)
	if r.size == 0 {
		r.early = len(r.pools)
	}
}

const maxBootPages = 1 << 30

// count reads a number of pages, or numbers by node. Of a value that names a node which the host does not have, it
// takes the others.
func (r *pageReader) count(text string) (pool bootPool, ok bool) {
	for part := range strings.SplitSeq(text, ",") {
		node, count, byNode := strings.Cut(part, ":")
		if !byNode {
			node, count = "0", part
		}
		id, err := strconv.Atoi(node)
		n, err2 := strconv.Atoi(count)
		if err != nil || err2 != nil || id < 0 || n < 0 || n > maxBootPages || !byNode && part != text {
			return bootPool{}, false
		}
		if byNode && before(r.h.Kernel.Release, 5, 16) {
			r.drop("one number of pages", fmt.Sprintf("hugepages=%s: Linux %s takes no number for each node and "+
				"reads this as %d", text, r.h.Kernel.Release, id))
			return bootPool{total: id}, true
		}
		if byNode && !hasNode(r.h, id) {
			r.drop("numbers for nodes that the host has", fmt.Sprintf(
				"hugepages=%s: %s for node %d, which the host does not have; the kernel drops it", text,
				farm.Count(n, "page"), id))
			continue
		}
		if byNode {
			if pool.nodes == nil {
				pool.nodes = map[int]int{}
			}
			pool.nodes[id] += n
		}
		pool.total += n
	}
	return pool, pool.total <= maxBootPages
}

// hasNode reports whether a host has a node, as far as it tells.
func hasNode(h farm.HostFacts, id int) bool {
	is := func(n farm.Node) bool { return n.ID == id }
	return len(h.Topology.Nodes) == 0 || slices.ContainsFunc(h.Topology.Nodes, is) ||
		slices.ContainsFunc(h.Topology.Overlapping, is)
}

// memparse reads a size as the kernel does: a number and one letter; 2M, 2048K and 2048kB are one size. It returns 0
// for text that does not begin so.
func memparse(text string) farm.Bytes {
	base, digits := 10, "0123456789"
	if rest, hex := strings.CutPrefix(strings.ToLower(text), "0x"); hex {
		base, digits, text = 16, "0123456789abcdef", rest
	}
	end := len(text) - len(strings.TrimLeft(strings.ToLower(text), digits))
	n, err := strconv.ParseUint(text[:end], base, 64)
	if err != nil {
		return 0
	}
	shift := uint(0)
	if end < len(text) {
		shift = 10 * uint(strings.IndexByte("KMGTPE", strings.ToUpper(text)[end])+1)
	}
	if n > 1<<62>>shift {
		return 0
	}
	return farm.Bytes(n << shift)
}

// kernelPage is the size of huge pages that a kernel takes where no default_hugepagesz is given: of the processor, and
// of its ordinary pages.
func kernelPage(h farm.HostFacts) farm.Bytes {
	if _, chosen := bootValue(h.Kernel.Command, "default_hugepagesz"); !chosen && h.Memory.DefaultPage > 0 {
		return h.Memory.DefaultPage
	}
	switch {
	case poolKnown(h, farm.MiB): // s390x
		return farm.MiB
	case poolKnown(h, 512*farm.MiB): // arm64 with pages of 64 KiB
		return 512 * farm.MiB
	case poolKnown(h, 16*farm.MiB): // ppc64 with hash tables
		return 16 * farm.MiB
	case poolKnown(h, 32*farm.MiB) && !poolKnown(h, 64*farm.KiB): // arm64 with pages of 16 KiB
		return 32 * farm.MiB
	case poolKnown(h, 4*farm.MiB) && !poolKnown(h, defaultHugePage): // x86 without PAE
		return 4 * farm.MiB
	}
	return defaultHugePage
}

// kernelHasPage reports whether a kernel takes a page size on its command line, as far as the host tells. A size that
// the running kernel was asked for is there or was refused. Of others x86 tells by its flags; arm64 and ppc64 show all
// that they have; s390x shows those of 2 GiB once they were asked for.
func kernelHasPage(h farm.HostFacts, size farm.Bytes) bool {
	flags := h.Topology.CPU.Flags
	switch {
	case len(h.Pages) == 0 && len(flags) == 0, poolKnown(h, size):
		return true
	case len(h.Pages) > 0 && asksForSize(h.Kernel.Command, size):
		return false
	case slices.Contains(flags, "lm"):
		return size == defaultHugePage || size == farm.GiB && slices.Contains(flags, "pdpe1gb")
	case slices.Contains(flags, "pse"): // x86 of 32 bits, with PAE or without
		return size == defaultHugePage || size == 4*farm.MiB
	case poolKnown(h, farm.MiB):
		return size == 2*farm.GiB
	}
	return len(h.Pages) == 0
}

// asksForSize reports whether a command line names a page size.
func asksForSize(line string, size farm.Bytes) bool {
	return slices.ContainsFunc(bootParams(line), func(p bootParam) bool {
		return (p.name == "hugepagesz" || p.name == "default_hugepagesz") && memparse(p.value) == size
	})
}
