package chart

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/grange-project/grange/internal/farm"
)

const (
	pictureName    = 10 // characters of a VM's name at most
	pictureColumns = 4  // cores in a row that a socket should have before it is put beside another
	pictureWidth   = 80 // where the width is not known
	pictureText    = 30 // characters that a socket's box leaves for words
)

// Text draws the sockets, nodes, cores and threads of a host in at most width columns, where that can be, with
// the holder of each thread by CPU number; "." is a free one. Each column of a grid is one core. Sockets stand side by
// side where they fit.
func Text(t farm.Topology, holders map[int]string, width int) string {
	if width <= 0 {
		width = pictureWidth
	}
	p := newPicture(t, holders, width)
	var b strings.Builder
	fmt.Fprintln(&b, cutTo(p.head(), width))
	for row := range slices.Chunk(t.Sockets, p.abreast) {
		var boxes [][]string
		for _, s := range row {
			boxes = append(boxes, p.socket(s))
		}
		writeAbreast(&b, boxes)
	}
	for _, n := range t.Nodes {
		if in := p.socketsOf(n.ID); len(in) != 1 {
			fmt.Fprintln(&b, cutTo(p.node(n)+where(in), width))
		}
	}
	return b.String()
}

func where(sockets []int) string {
	if len(sockets) == 0 {
		return ", no CPUs"
	}
	return fmt.Sprintf(", of sockets %v", farm.NewCPUSet(sockets...))
}

type picture struct {
	host          farm.Topology
	holders       map[int]string
	digits, names int // width of a CPU number and of a holder
	abreast       int // sockets beside each other
	perRow        int // cores in one row of a grid
	inner         int // width inside a socket's box
}

func newPicture(t farm.Topology, holders map[int]string, width int) *picture {
	p := &picture{host: t, holders: map[int]string{}, names: 1, digits: 1, abreast: 1}
	for _, cpu := range t.Online.List() {
		p.digits = max(p.digits, len(fmt.Sprint(cpu)))
		name := farm.Printable(holders[cpu])
		if name == "" {
			name = "."
		}
		p.holders[cpu] = name
		p.names = max(p.names, utf8.RuneCountInString(name))
	}
	p.names = max(1, min(p.names, pictureName, width-p.digits-7))
	p.fit(width)
	return p
}

// fit chooses how many sockets stand side by side and how many cores a row has. A core takes a separator, its number, a
// blank and its holder; a socket adds its own two edges and two blanks, and the last separator.
func (p *picture) fit(width int) {
	core, most := p.digits+p.names+2, 1
	for _, c := range p.blocks() {
		most = max(most, len(c))
	}
	for n := max(1, len(p.host.Sockets)); n >= 1; n-- {
		each := (width - (n - 1)) / n
		if per := (each - 5) / core; per >= min(pictureColumns, most) || n == 1 {
			p.abreast, p.perRow = n, max(1, min(per, most))
			break
		}
	}
	if rows := (most + p.perRow - 1) / p.perRow; rows > 0 {
		p.perRow = (most + rows - 1) / rows // rows of even length
	}
	p.inner = max(p.perRow*core+1, min(pictureText, (width-(p.abreast-1))/p.abreast-4))
}

// socketNode is the part of a node on one socket.
type socketNode struct{ socket, node int }

func (p *picture) blocks() map[socketNode][]farm.Core {
	out := map[socketNode][]farm.Core{}
	for _, c := range p.host.Cores {
		b := socketNode{c.Socket, c.Node}
		out[b] = append(out[b], c)
	}
	return out
}

func (p *picture) socketsOf(node int) []int {
	var out []int
	for b := range p.blocks() {
		if b.node == node {
			out = append(out, b.socket)
		}
	}
	return out
}

func (p *picture) head() string {
	held := 0
	for _, name := range p.holders {
		if name != "." {
			held++
		}
	}
	s := fmt.Sprintf("%s, %s, %s: %d held, %d free", farm.Count(len(p.host.Sockets), "socket"),
		farm.Count(len(p.host.Cores), "core"), farm.Count(p.host.Online.Len(), "thread"), held,
		p.host.Online.Len()-held)
	if p.host.CPU.Name != "" {
		s += "; " + farm.Printable(p.host.CPU.Name)
	}
	return s
}

// node is one node's memory in words.
func (p *picture) node(n farm.Node) string {
	s := fmt.Sprintf("node %d: no memory", n.ID)
	if n.Memory > 0 {
		s = fmt.Sprintf("node %d: %v", n.ID, n.Memory.Rounded())
		if p.knowsFree() {
			s += fmt.Sprintf(", %v free", n.Free.Rounded())
		}
	}
	for _, h := range n.Pages {
		if h.Total > 0 {
			s += fmt.Sprintf(", %v pages %d/%d free", h.Size, h.Free, h.Total)
		}
	}
	return s
}

// socket draws one socket: its nodes, each a line and a grid.
func (p *picture) socket(s farm.Socket) []string {
	var lines []string
	for _, n := range p.host.Nodes {
		cores := p.blocks()[socketNode{s.ID, n.ID}]
		if len(cores) == 0 {
			continue
		}
		if len(p.socketsOf(n.ID)) == 1 {
			lines = append(lines, wrap(p.node(n), p.inner)...)
		}
		lines = append(lines, p.grid(cores)...)
	}
	title := cutTo(fmt.Sprintf(" socket %d ", s.ID), p.inner)
	out := []string{"┌─" + title + strings.Repeat("─", p.inner+1-utf8.RuneCountInString(title)) + "┐"}
	for _, line := range lines {
		out = append(out, "│ "+padTo(line, p.inner)+" │")
	}
	return append(out, "└"+strings.Repeat("─", p.inner+2)+"┘")
}

// grid draws cores as columns and their threads as lines.
func (p *picture) grid(cores []farm.Core) []string {
	var out []string
	for row := range slices.Chunk(cores, p.perRow) {
		switch {
		case len(out) == 0:
			out = append(out, p.rule("┌┬┐", len(row)))
		case len(row) < p.perRow:
			out = append(out, p.ruleAbove(len(row)))
		default:
			out = append(out, p.rule("├┼┤", len(row)))
		}
		threads := 0
		for _, c := range row {
			threads = max(threads, c.Threads.Len())
		}
		for i := range threads {
			line := "│"
			for _, c := range row {
				line += p.thread(c, i) + "│"
			}
			out = append(out, line)
		}
	}
	last := len(cores) % p.perRow
	if last == 0 {
		last = p.perRow
	}
	return append(out, p.rule("└┴┘", min(last, len(cores))))
}

func (p *picture) thread(c farm.Core, i int) string {
	if i >= c.Threads.Len() {
		return strings.Repeat(" ", p.digits+1+p.names)
	}
	cpu := c.Threads.List()[i]
	return fmt.Sprintf("%*d %s", p.digits, cpu, padTo(cutTo(p.holders[cpu], p.names), p.names))
}

// rule draws a horizontal line of n columns with the left, inner and right corners of edge.
func (p *picture) rule(edge string, n int) string {
	e := []rune(edge)
	cells := make([]string, n)
	for i := range cells {
		cells[i] = strings.Repeat("─", p.digits+1+p.names)
	}
	return string(e[0]) + strings.Join(cells, string(e[1])) + string(e[2])
}

// ruleAbove closes a full row above one that has only n columns.
func (p *picture) ruleAbove(n int) string {
	full, short := []rune(p.rule("└┴┘", p.perRow)), []rune(p.rule("├┼┼", n))
	copy(full, short)
	return string(full)
}

func writeAbreast(b *strings.Builder, boxes [][]string) {
	height := 0
	for _, box := range boxes {
		height = max(height, len(box))
	}
	for i := range height {
		var line string
		for j, box := range boxes {
			if j > 0 {
				line += " "
			}
			text := ""
			if i < len(box) {
				text = box[i]
			}
			line += padTo(text, utf8.RuneCountInString(box[0]))
		}
		fmt.Fprintln(b, strings.TrimRight(line, " "))
	}
}

// wrap breaks s at its commas into lines of at most width characters.
func wrap(s string, width int) []string {
	var out []string
	line := ""
	for i, part := range strings.Split(s, ", ") {
		switch {
		case i == 0:
			line = part
		case utf8.RuneCountInString(line)+2+utf8.RuneCountInString(part) <= width:
			line += ", " + part
		default:
			out = append(out, cutTo(line, width))
			line = "  " + part
		}
	}
	return append(out, cutTo(line, width))
}

func cutTo(s string, width int) string {
	r := []rune(s)
	if len(r) <= width {
		return s
	}
	if width < 2 {
		return string(r[:max(width, 0)])
	}
	return string(r[:width-1]) + "…"
}

func padTo(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}

// knowsFree reports whether free memory is known: a recording of the hardware alone has none to tell, and a host that
// is full has somebody on it.
func (p *picture) knowsFree() bool {
	if slices.ContainsFunc(p.host.Nodes, func(n farm.Node) bool { return n.Free > 0 }) {
		return true
	}
	for _, name := range p.holders {
		if name != "." {
			return true
		}
	}
	return false
}
