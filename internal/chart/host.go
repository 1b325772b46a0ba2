package chart

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// Level is how loud a mark is.
type Level int

// Levels, in rising order; they are those of findings.
const (
	Advice Level = iota + 1
	Warning
	Fault
)

func (l Level) class() string {
	return map[Level]string{Advice: "advice", Warning: "warning", Fault: "fault"}[l]
}

// Mark points at a place on a host. Only one of Node, CPUs and VM counts.
type Mark struct {
	Level Level
	Text  string // shown where the pointer rests
	Node  *int   // memory node, by its ID
	CPUs  farm.CPUSet
	VM    string
}

// Sizes in the picture's own units, which are pixels where it is not scaled.
const (
	cellNarrow = 30
	cellWide   = 53
	cellHeight = 17
	coreGap    = 4
	groupPad   = 6
	groupGap   = 8
	cardPad    = 12
	cardGap    = 16
	lineHeight = 17
	barHeight  = 9
	widest     = 470 // within a socket's card
	narrowest  = 290
	mostLegend = 24 // VMs named in the legend
	nameLength = 24
)

// Host draws sockets, memory nodes, last-level caches, cores and threads, with the memory and huge pages of each node. Where VMs
// are known, each thread has the colour of the VM that may run on it. The text of VMs and marks is escaped.
func Host(h farm.Host, marks []Mark) string {
	d := &drawing{host: h, marks: marks, holders: holders(h)}
	return d.picture()
}

// block is the part of a node on one socket: what is drawn together.
type block struct {
	socket int
	node   farm.Node
	groups []group
}

// group is the cores of a block that share a last-level cache. No cache is known where shared is false.
type group struct {
	cores  []farm.Core
	shared bool
}

type drawing struct {
	host    farm.Host
	marks   []Mark
	holders map[int][]int // VMs by index into host.Domains, for each CPU
	cell    int           // width of a thread
	inner   int           // width within each socket's card
	out     strings.Builder
}

// holders tells which VMs may run on which CPU. A VM whose vCPUs may run everywhere is not pinned, and holds none.
func holders(h farm.Host) map[int][]int {
	out := map[int][]int{}
	for i, d := range h.Domains {
		for _, cpu := range pins(h, d).List() {
			out[cpu] = append(out[cpu], i)
		}
	}
	return out
}

// pins is where a VM's vCPUs may run; empty where that is the whole host.
func pins(h farm.Host, d farm.Domain) farm.CPUSet {
	var all farm.CPUSet
	for _, set := range d.VCPUPins {
		if set.And(h.Topology.Online).Equal(h.Topology.Online) {
			return farm.CPUSet{}
		}
		all = all.Or(set)
	}
	return all.And(h.Topology.Online)
}

func (d *drawing) picture() string {
	t := d.host.Topology
	blocks := blocksOf(t)
	d.inner, d.cell = narrowest, cellOf(blocks)
	for _, b := range blocks {
		_, width, _ := flow(b, d.cell)
		d.inner = max(d.inner, width)
	}
	abreast := min(2, max(1, len(t.Sockets)))
	card := d.inner + 2*cardPad
	y := 0
	for row := range slices.Chunk(t.Sockets, abreast) {
		tallest := 0
		for _, s := range row {
			tallest = max(tallest, d.socketHeight(s.ID, blocks))
		}
		for i, s := range row {
			d.socket(s, blocks, i*(card+cardGap), y, tallest)
		}
		y += tallest + cardGap
	}
	width := abreast*card + (abreast-1)*cardGap
	y = d.loneNodes(blocks, y)
	y = d.legend(y, width)
	head := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" class="host-chart" viewBox="-1 -1 %d %d" width="%d" height="%d" role="img" aria-label="%s">`+"\n",
		width+2, y+2, width+2, y+2, escape(label(t)))
	return head + style + d.out.String() + "</svg>\n"
}

func label(t farm.Topology) string {
	return fmt.Sprintf("%d sockets, %d memory nodes, %d cores and %d threads", len(t.Sockets), len(t.Nodes), len(t.Cores), t.Online.Len())
}

// blocksOf groups cores by socket, node and last-level cache.
func blocksOf(t farm.Topology) []block {
	var out []block
	for _, s := range t.Sockets {
		for _, n := range t.Nodes {
			b := block{socket: s.ID, node: n}
			var rest []farm.Core
			byCache := make([][]farm.Core, len(t.L3))
			for _, c := range t.Cores {
				if c.Socket != s.ID || c.Node != n.ID {
					continue
				}
				i := slices.IndexFunc(t.L3, func(l farm.CPUSet) bool { return !l.And(c.Threads).Empty() })
				if i < 0 {
					rest = append(rest, c)
				} else {
					byCache[i] = append(byCache[i], c)
				}
			}
			for _, cores := range byCache {
				if len(cores) > 0 {
					b.groups = append(b.groups, group{cores, true})
				}
			}
			if len(rest) > 0 {
				b.groups = append(b.groups, group{rest, false})
			}
			if len(b.groups) > 0 {
				out = append(out, b)
			}
		}
	}
	return out
}

// cellOf is the width of a thread: as wide as it can be without making any node's cores take more rows.
func cellOf(blocks []block) int {
	fits := func(b block, cell int) bool {
		_, _, low := flow(b, cellNarrow)
		_, width, height := flow(b, cell)
		return width <= widest && height == low
	}
	for cell := cellWide; cell > cellNarrow; cell-- {
		if !slices.ContainsFunc(blocks, func(b block) bool { return !fits(b, cell) }) {
			return cell
		}
	}
	return cellNarrow
}

// perRow is how many cores of a group stand beside each other: rows of even length, and narrow where there are several caches.
func perRow(g group, groups int) int {
	width := widest
	if groups > 1 {
		width = (widest - groupGap) / 2
	}
	most := max(1, (width-2*groupPad)/(cellNarrow+coreGap))
	rows := (len(g.cores) + most - 1) / most
	return (len(g.cores) + rows - 1) / rows
}

func groupSize(g group, groups, cell int) (width, height int) {
	per := perRow(g, groups)
	rows := (len(g.cores) + per - 1) / per
	threads := 1
	for _, c := range g.cores {
		threads = max(threads, c.Threads.Len())
	}
	return per*(cell+coreGap) - coreGap + 2*groupPad, rows*(threads*cellHeight+coreGap+2) - coreGap - 2 + 2*groupPad
}

// flow places the groups of a block in rows, and gives their corners and the size of all.
func flow(b block, cell int) (at [][2]int, width, height int) {
	x, y, row := 0, 0, 0
	for _, g := range b.groups {
		w, h := groupSize(g, len(b.groups), cell)
		if x > 0 && x+w > widest {
			x, y, row = 0, y+row+groupGap, 0
		}
		at = append(at, [2]int{x, y})
		width = max(width, x+w)
		x += w + groupGap
		row = max(row, h)
	}
	return at, width, y + row
}

func (d *drawing) blockHeight(b block) int {
	_, _, h := flow(b, d.cell)
	return d.memoryHeight(b.node) + h
}

func (d *drawing) memoryHeight(n farm.Node) int {
	return (1+len(pageLines(n)))*lineHeight + barHeight + 10
}

func (d *drawing) socketHeight(id int, blocks []block) int {
	height := cardPad + lineHeight
	for _, b := range blocks {
		if b.socket == id {
			height += d.blockHeight(b) + 12
		}
	}
	return height + cardPad - 6
}

func (d *drawing) socket(s farm.Socket, blocks []block, x, y, height int) {
	d.add(`<g transform="translate(%d %d)"><rect class="card" width="%d" height="%d" rx="8"/>`, x, y, d.inner+2*cardPad, height)
	d.text(cardPad, cardPad+10, "head", fmt.Sprintf("socket %d", s.ID))
	at := cardPad + lineHeight + 4
	for _, b := range blocks {
		if b.socket == s.ID {
			d.block(b, cardPad, at)
			at += d.blockHeight(b) + 12
		}
	}
	d.add("</g>\n")
}

func (d *drawing) block(b block, x, y int) {
	y = d.memory(b.node, x, y)
	at, _, _ := flow(b, d.cell)
	for i, g := range b.groups {
		d.group(g, len(b.groups), x+at[i][0], y+at[i][1])
	}
}

func (d *drawing) group(g group, groups, x, y int) {
	w, h := groupSize(g, groups, d.cell)
	class, title := "cache", "a last-level cache that these cores share"
	if !g.shared {
		class, title = "nocache", "no last-level cache is known"
	}
	d.add(`<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="5"><title>%s</title></rect>`, class, x, y, w, h, title)
	per := perRow(g, groups)
	threads := 1
	for _, c := range g.cores {
		threads = max(threads, c.Threads.Len())
	}
	for i, c := range g.cores {
		cx := x + groupPad + i%per*(d.cell+coreGap)
		cy := y + groupPad + i/per*(threads*cellHeight+coreGap+2)
		for j, cpu := range c.Threads.List() {
			d.thread(cpu, cx, cy+j*cellHeight)
		}
		d.add(`<rect class="core" x="%d" y="%d" width="%d" height="%d" rx="3"/>`, cx, cy, d.cell, c.Threads.Len()*cellHeight)
	}
	d.add("\n")
}

// thread draws one CPU with the colours of its holders side by side.
func (d *drawing) thread(cpu, x, y int) {
	vms := d.holders[cpu]
	d.add(`<g><title>%s</title><rect class="cpu" x="%d" y="%d" width="%d" height="%d"/>`, escape(d.told(cpu, vms)), x, y, d.cell, cellHeight)
	for i, vm := range vms {
		left, right := i*d.cell/len(vms), (i+1)*d.cell/len(vms)
		d.add(`<rect fill="%s" x="%d" y="%d" width="%d" height="%d"/>`, hue(vm), x+left, y, right-left, cellHeight)
	}
	class := "number"
	if len(vms) > 0 {
		class = "number held"
	}
	d.add(`<text class="%s" x="%d" y="%d">%d</text>`, class, x+d.cell/2, y+12, cpu)
	if d.host.Isolated.Has(cpu) {
		d.add(`<rect class="isolated" x="%d" y="%d" width="%d" height="%d"/>`, x+1, y+1, d.cell-2, cellHeight-2)
	}
	if level, _ := d.marked(func(m Mark) bool { return m.CPUs.Has(cpu) && m.CPUs.Len() < d.host.Topology.Online.Len() }); level > 0 {
		d.add(`<rect class="mark %s" x="%d" y="%d" width="%d" height="%d"/>`, level.class(), x+1, y+1, d.cell-2, cellHeight-2)
	}
	d.add("</g>")
}

func (d *drawing) told(cpu int, vms []int) string {
	text := fmt.Sprintf("CPU %d", cpu)
	if d.host.Isolated.Has(cpu) {
		text += ", isolated"
	}
	for _, vm := range vms {
		text += ", VM " + d.host.Domains[vm].Name
	}
	if _, marks := d.marked(func(m Mark) bool { return m.CPUs.Has(cpu) }); marks != "" {
		text += ": " + marks
	}
	return text
}

// marked is the highest level of the marks that fit, and their texts.
func (d *drawing) marked(fits func(Mark) bool) (Level, string) {
	var highest Level
	var texts []string
	for _, m := range d.marks {
		if fits(m) {
			highest = max(highest, m.Level)
			if !slices.Contains(texts, m.Text) {
				texts = append(texts, m.Text)
			}
		}
	}
	return highest, strings.Join(texts, "; ")
}

// loneNodes draws the memory of nodes without CPUs, which belong to no socket.
func (d *drawing) loneNodes(blocks []block, y int) int {
	for _, n := range d.host.Topology.Nodes {
		if slices.ContainsFunc(blocks, func(b block) bool { return b.node.ID == n.ID }) {
			continue
		}
		height := d.memoryHeight(n) + cardPad
		d.add(`<g transform="translate(0 %d)"><rect class="card" width="%d" height="%d" rx="8"/>`, y, d.inner+2*cardPad, height)
		d.memory(n, cardPad, cardPad)
		d.add("</g>\n")
		y += height + cardGap
	}
	return y
}
