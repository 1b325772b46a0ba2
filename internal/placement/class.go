package placement

import (
	"cmp"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// class is requests of one cell that any host answers alike, and what each host answers: about how good a place it has,
// or what it lacks. It follows the cell's journal, so that a choice looks at the hosts that changed, and then at the
// best few.
type class struct {
	key     classKey
	cell    *cell
	shape   farm.Shape
	request numa.Request
	demand  numa.Demand
	needs   []string
	carries *slotSet // hosts that carry its network
	has     *slotSet // and that have its image
	quick   *slotSet // hosts that need not fetch the image

	answers []answer // by slot
	heap    []int32  // slots that may have room, least score first
	counts  [verdicts]int
	seen    int // of the journal
	used    uint64
}

// classKey identifies a class of a cell.
type classKey struct {
	cpus, cells     int
	memory, scratch farm.Bytes
	bandwidth       farm.Bandwidth
	pages           [maxSizes]farm.Bytes
	sizes           int
	guest           farm.GuestTopology
	threads         farm.ThreadPolicy
	emulator        farm.EmulatorPolicy
	needs           string
	network, image  string
	prefer          string
}

// maxSizes is the most page sizes that a shape can have.
const maxSizes = 4

func keyOf(r Request) classKey {
	s := r.Shape
	k := classKey{cpus: s.CPUs, cells: s.Cells, memory: s.Memory, scratch: s.DiskSpace(), bandwidth: s.Bandwidth,
		sizes: len(s.Pages), guest: s.Guest, threads: s.Threads, emulator: s.Emulator, network: r.Network,
		image: r.Image, prefer: r.Prefer}
	copy(k.pages[:], s.Pages)
	switch len(r.Needs) {
	case 0:
	case 1:
		k.needs = r.Needs[0]
	default:
		k.needs = strings.Join(slices.Sorted(slices.Values(r.Needs)), ",")
	}
	return k
}

// Class identifies requests that are alike: at any time all of one class are taken, or none is. Which host it is may
// differ.
type Class struct {
	key                   classKey
	cells, group, avoided string
	affinity              farm.Affinity
}

// ClassOf is the request's class.
func ClassOf(r Request) Class {
	r.Prefer = "" // which host it is
	return Class{key: keyOf(r), cells: strings.Join(r.Cells, "\n"), group: r.Group, affinity: r.Affinity,
		avoided: strings.Join(slices.Sorted(slices.Values(r.Avoid)), "\n")}
}

// answer is what one host answers to a class.
type answer struct {
	score   float64
	at      int32 // in the heap; -1: it is not there
	verdict verdict
	exact   bool // the score is not a guess: numa.Plan was asked
	fetches bool // it has yet to fetch the image
}

// verdict is a Constraint in a byte.
type verdict uint8

const (
	absent verdict = iota // no host
	fits                  // as far as is known
	refuses
	mislabelled
	unconnected
	imageless
	full
	fewCPUs
	littleMemory
	fewPages
	littleScratch
	littleBandwidth
	inPieces
	verdicts // how many there are
)

var constraintOf = [verdicts]Constraint{refuses: HostRefuses, mislabelled: WrongLabels, unconnected: NoNetwork,
	imageless: NoImage, full: HostFull, fewCPUs: NoCPUs, littleMemory: NoMemory, fewPages: NoPages,
	littleScratch: NoScratch, littleBandwidth: NoBandwidth, inPieces: InPieces}

var verdictOf = map[numa.Shortage]verdict{numa.ShortOfNothing: fits, numa.ShortOfCPUs: fewCPUs,
	numa.ShortOfMemory: littleMemory, numa.ShortOfPages: fewPages, numa.ShortOfTogether: inPieces}

// maxSlots bounds the answers that all classes keep together: about 24 bytes each.
const maxSlots = 3 << 20

// class finds the request's class, or makes it: then each host of the cell is looked at once. The error is of
// farm.CodeBadShape.
func (f *Fleet) class(c *cell, r Request) (*class, error) {
	if r.Prefer != "" && !c.differ(r.Prefer) {
		r.Prefer = "" // one class for all such images
	}
	key := keyOf(r)
	k := c.classes[key]
	if k == nil {
		var err error
		if k, err = newClass(c, r); err != nil {
			return nil, err
		}
		f.makeRoom(len(c.slots))
		c.classes[key] = k
	}
	f.uses++
	k.used = f.uses
	f.slots -= len(k.answers)
	k.follow()
	f.slots += len(k.answers)
	return k, nil
}

// newClass is a class that knows no answer yet.
func newClass(c *cell, r Request) (*class, error) {
	k := &class{key: keyOf(r), cell: c, shape: r.Shape, request: requestOf(r.Shape),
		needs: slices.Clone(r.Needs), seen: -1}
	var err error
	k.demand, err = k.request.Demand()
	return k, err
}

// makeRoom forgets classes that were not asked for longest, until there is room for one more.
func (f *Fleet) makeRoom(slots int) {
	for f.slots+slots > maxSlots {
		var oldest *class
		for _, c := range f.cells {
			for _, k := range c.classes {
				if oldest == nil || k.used < oldest.used {
					oldest = k
				}
			}
		}
		if oldest == nil {
			return
		}
		f.slots -= len(oldest.answers)
		delete(oldest.cell.classes, oldest.key)
	}
}

// forget drops all classes of a cell: what they were made from has changed.
func (f *Fleet) forget(c *cell) {
	for _, k := range c.classes {
		f.slots -= len(k.answers)
	}
	clear(c.classes)
}

// follow brings the answers up to date.
func (k *class) follow() {
	c := k.cell
	// a set that becomes empty is dropped, and made anew
	k.carries, k.has, k.quick = c.networks[k.key.network], c.images[k.key.image], c.images[k.key.prefer]
	if k.seen < c.dropped {
		k.answers, k.heap, k.counts = make([]answer, len(c.slots)), k.heap[:0], [verdicts]int{}
		k.counts[absent] = len(c.slots)
		for slot := range k.answers {
			k.answers[slot].at = -1
			k.look(int32(slot), true)
		}
		k.seen = c.written()
		return
	}
	for len(k.answers) < len(c.slots) {
		k.answers = append(k.answers, answer{at: -1})
		k.counts[absent]++
	}
	for _, ch := range c.journal[k.seen-c.dropped:] {
		k.look(ch.slot, ch.grew)
	}
	k.seen = c.written()
}

// look asks one host again.
func (k *class) look(slot int32, grew bool) {
	score, v := k.ask(k.cell.slots[slot])
	if !grew && v == fits && k.answers[slot].verdict == inPieces {
		return // there is only less than when it was planned and refused
	}
	k.put(slot, answer{score: score, verdict: v, fetches: v == fits && !k.quick.has(slot)})
}

// ask is a host's answer, as far as sums can tell.
func (k *class) ask(h *host) (score float64, v verdict) {
	switch {
	case h == nil:
		return 0, absent
	case h.Refuses != "":
		return 0, refuses
	case !k.labelled(h):
		return 0, mislabelled
	case k.key.network != "" && !k.carries.has(h.slot):
		return 0, unconnected
	case k.key.image != "" && !k.has.has(h.slot):
		return 0, imageless
	case k.cell.PerHost > 0 && len(h.vms) >= k.cell.PerHost:
		return 0, full
	case h.scratch+k.key.scratch > h.Scratch && k.key.scratch > 0:
		return 0, littleScratch
	case !k.key.bandwidth.Fits(h.Bandwidth, h.booked):
		return 0, littleBandwidth
	}
	cost, short := h.outline.Estimate(&k.demand)
	return k.score(h, cost), verdictOf[short]
}

func (k *class) labelled(h *host) bool {
	for _, selector := range k.needs {
		if !matches(h.Labels, selector) {
			return false
		}
	}
	return true
}

// score is how good a place is, least first: what it costs, or how full the host is where VMs are spread.
func (k *class) score(h *host, cost numa.Cost) float64 {
	if k.cell.Packing != farm.Spread {
		return float64(cost)
	}
	all, free := h.outline.Threads()
	return 1 - float64(free)/float64(max(all, 1))
}

// put enters an answer.
func (k *class) put(slot int32, a answer) {
	old := &k.answers[slot]
	k.counts[old.verdict]--
	k.counts[a.verdict]++
	a.at = old.at
	*old = a
	switch {
	case a.verdict != fits && a.at >= 0:
		k.remove(a.at)
	case a.verdict == fits && a.at < 0:
		old.at = int32(len(k.heap))
		k.heap = append(k.heap, slot)
		k.up(old.at)
	case a.verdict == fits:
		k.up(a.at)
		k.down(old.at)
	}
}

func (k *class) less(a, b int32) bool { return k.compare(a, b) < 0 }

// compare orders slots: the least score first; of the same score, those that have the image.
func (k *class) compare(a, b int32) int {
	x, y := &k.answers[a], &k.answers[b]
	switch {
	case x.score != y.score:
		return cmp.Compare(x.score, y.score)
	case x.fetches != y.fetches && y.fetches:
		return -1
	case x.fetches != y.fetches:
		return 1
	}
	return cmp.Compare(a, b)
}

func (k *class) swap(i, j int32) {
	k.heap[i], k.heap[j] = k.heap[j], k.heap[i]
	k.answers[k.heap[i]].at, k.answers[k.heap[j]].at = i, j
}

func (k *class) up(i int32) {
	for i > 0 {
		parent := (i - 1) / 2
		if !k.less(k.heap[i], k.heap[parent]) {
			return
		}
		k.swap(i, parent)
		i = parent
	}
}

func (k *class) down(i int32) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && int(child) < len(k.heap); child++ {
			if k.less(k.heap[child], k.heap[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		k.swap(i, least)
		i = least
	}
}

func (k *class) remove(i int32) {
	last := int32(len(k.heap) - 1)
	slot := k.heap[i]
	k.swap(i, last)
	k.heap = k.heap[:last]
	k.answers[slot].at = -1
	if i < last {
		moved := k.heap[i]
		k.up(i)
		k.down(k.answers[moved].at)
	}
}

// first collects up to n slots that may have room and that accept takes, least score first.
func (k *class) first(n int, accept func(h *host) bool, into []int32) []int32 {
	if len(k.heap) == 0 {
		return into
	}
	frontier := []int32{0} // places in the heap whose parents were looked at; a heap by itself
	for len(frontier) > 0 && len(into) < n {
		place := frontier[0]
		last := len(frontier) - 1
		frontier[0] = frontier[last]
		frontier = frontier[:last]
		k.sink(frontier, 0)
		if slot := k.heap[place]; accept(k.cell.slots[slot]) {
			into = append(into, slot)
		}
		for child := 2*place + 1; child <= 2*place+2 && int(child) < len(k.heap); child++ {
			frontier = append(frontier, child)
			for i := len(frontier) - 1; i > 0 &&
				k.less(k.heap[frontier[i]], k.heap[frontier[(i-1)/2]]); i = (i - 1) / 2 {
				frontier[i], frontier[(i-1)/2] = frontier[(i-1)/2], frontier[i]
			}
		}
	}
	return into
}

func (k *class) sink(frontier []int32, i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(frontier); child++ {
			if k.less(k.heap[frontier[child]], k.heap[frontier[least]]) {
				least = child
			}
		}
		if least == i {
			return
		}
		frontier[i], frontier[least] = frontier[least], frontier[i]
		i = least
	}
}
