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
	rowGap     = 6
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

// Host draws sockets, memory nodes, last-level caches, cores and threads, with the memory and huge pages of each node.
// Where VMs are known, each thread has the colour of the VM that may run on it. The text of VMs and marks is escaped.
func Host(h farm.HostFacts, marks []Mark) string {
	return draw(h, marks).picture("<style>\n" + Sheet + "</style>\n")
}

// HostBare is Host without its style, for pages that have Sheet by themselves, and may not have styles in them.
func HostBare(h farm.HostFacts, marks []Mark) string { return draw(h, marks).picture("") }

func draw(h farm.HostFacts, marks []Mark) *drawing {
	return &drawing{host: h, marks: marks, holders: holders(h)}
}

type drawing struct {
	host    farm.HostFacts
	marks   []Mark
	holders map[int][]int // VMs by index into host.Domains, for each CPU
	cell    int           // width of a thread
	inner   int           // width within each socket's card
	out     strings.Builder
}

// holders returns which VMs may run on which CPU. A VM whose vCPUs may run everywhere is not pinned, and holds none.
func holders(h farm.HostFacts) map[int][]int {
	out := map[int][]int{}
	for i, d := range h.Domains {
		for _, cpu := range pins(h, d).List() {
			out[cpu] = append(out[cpu], i)
		}
	}
	return out
}

// pins is where a VM's vCPUs may run; empty where that is the whole host.
func pins(h farm.HostFacts, d farm.Domain) farm.CPUSet {
	var all farm.CPUSet
	for _, set := range d.VCPUPins {
		if set.And(h.Topology.Online).Equal(h.Topology.Online) {
			return farm.CPUSet{}
		}
		all = all.Or(set)
	}
	return all.And(h.Topology.Online)
}

func (d *drawing) picture(style string) string {
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
	head := fmt.Sprintf(
		`<svg xmlns="http://www.w3.org/2000/svg" class="host-chart" viewBox="-1 -1 %d %d" width="%d" height="%d" role="img" aria-label="%s">`+"\n",
		width+2, y+2, width+2, y+2, escape(label(t)))
	return head + style + d.out.String() + "</svg>\n"
}

func label(t farm.Topology) string {
	return fmt.Sprintf("%d sockets, %d memory nodes, %d cores and %d threads", len(t.Sockets), len(t.Nodes),
		len(t.Cores), t.Online.Len())
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
	d.add(`<g transform="translate(%d %d)"><rect class="card" width="%d" height="%d" rx="8"/>`, x, y,
		d.inner+2*cardPad, height)
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
		d.group(g, x+at[i][0], y+at[i][1])
	}
}

func (d *drawing) group(g group, x, y int) {
	w, h := groupSize(g, d.cell)
	class, title := "cache", "a last-level cache that these cores share"
	if !g.shared {
		class, title = "nocache", "no last-level cache is known"
	}
	d.add(`<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="5"><title>%s</title></rect>`, class, x, y,
		w, h, title)
	cy := y + groupPad
	for _, row := range g.rows {
		for i, c := range row {
			cx := x + groupPad + i*(d.cell+coreGap)
			for j, cpu := range c.Threads.List() {
				d.thread(cpu, cx, cy+j*cellHeight)
			}
			d.add(`<rect class="core" x="%d" y="%d" width="%d" height="%d" rx="3"/>`, cx, cy, d.cell,
				c.Threads.Len()*cellHeight)
		}
		cy += mostThreads(row)*cellHeight + rowGap
	}
	d.add("\n")
}

// thread draws one CPU with the colours of its holders side by side.
func (d *drawing) thread(cpu, x, y int) {
	vms := d.holders[cpu]
	d.add(`<g><title>%s</title><rect class="cpu" x="%d" y="%d" width="%d" height="%d"/>`, escape(d.told(cpu, vms)), x,
		y, d.cell, cellHeight)
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
	if level, _ := d.marked(func(m Mark) bool { return d.drawn(m) && m.CPUs.Has(cpu) }); level > 0 {
		d.add(`<rect class="mark %s" x="%d" y="%d" width="%d" height="%d"/>`, level.class(), x+1, y+1, d.cell-2,
			cellHeight-2)
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

// drawn reports whether a mark points at a part of the host. One at all CPUs would frame everything, and say nothing.
func (d *drawing) drawn(m Mark) bool {
	return m.Node != nil || m.VM != "" || !m.CPUs.Empty() && !d.host.Topology.Online.Minus(m.CPUs).Empty()
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
		d.add(`<g transform="translate(0 %d)"><rect class="card" width="%d" height="%d" rx="8"/>`, y,
			d.inner+2*cardPad, height)
		d.memory(n, cardPad, cardPad)
		d.add("</g>\n")
		y += height + cardGap
	}
	return y
}
