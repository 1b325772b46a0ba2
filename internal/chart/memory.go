package chart

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

// memory draws a node's line, its huge pages and a bar, and gives where the next thing may begin.
func (d *drawing) memory(n farm.Node, x, y int) int {
	head := fmt.Sprintf("node %d", n.ID)
	switch {
	case n.Memory == 0:
		head += " · no memory"
	case n.Free == 0: // the kernel always keeps some: it was not told
		head += " · " + size(n.Memory)
	default:
		head += fmt.Sprintf(" · %s, %s free", size(n.Memory), size(n.Free))
	}
	if n.CPUs.Empty() {
		head += ", no CPUs"
	}
	d.text(x, y+12, "node", head)
	id := n.ID
	if level, text := d.marked(func(m Mark) bool { return m.Node != nil && *m.Node == id }); level > 0 {
		d.badge(x+d.inner-12, y+1, level, text)
	}
	y += lineHeight
	for _, line := range pageLines(n) {
		d.text(x, y+12, "pages", line)
		y += lineHeight
	}
	d.bar(n, x, y+2)
	return y + barHeight + 10
}

// pageLines returns what huge pages a node has, a line for each size of which there are any, or one that there are
// none.
func pageLines(n farm.Node) []string {
	if n.Memory == 0 {
		return nil
	}
	var out []string
	for _, p := range n.Pages {
		if p.Total > 0 {
			out = append(out, fmt.Sprintf("%d huge pages of %s, %d free", p.Total, size(p.Size), p.Free))
		}
	}
	if len(out) == 0 {
		out = []string{"no huge pages"}
	}
	return out
}

// bar shows a node's memory: huge pages in use and free, other memory in use, and what is free.
func (d *drawing) bar(n farm.Node, x, y int) {
	d.add(`<rect class="bar" x="%d" y="%d" width="%d" height="%d" rx="2"/>`, x, y, d.inner, barHeight)
	if n.Memory == 0 {
		return
	}
	var held, idle farm.Bytes
	for _, p := range n.Pages {
		held += farm.Bytes(max(p.Total-p.Free, 0)) * p.Size
		idle += farm.Bytes(max(p.Free, 0)) * p.Size
	}
	other := farm.Bytes(0)
	if sum := held + idle + n.Free; n.Free > 0 && sum < n.Memory {
		other = n.Memory - sum
	}
	at := 0.0
	for _, part := range []struct {
		class, title string
		bytes        farm.Bytes
	}{{"heldpages", "huge pages in use", held}, {"freepages", "free huge pages", idle}, {"other",
		"other memory in use", other}} {
		width := min(float64(part.bytes)/float64(n.Memory), 1-at)
		if width > 0 {
			d.add(`<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"><title>%s: %s</title></rect>`, part.class,
				float64(x)+at*float64(d.inner), y, width*float64(d.inner), barHeight, part.title, size(part.bytes))
		}
		at += width
	}
}

// size is b in words, in the largest unit of which there is one, with at most one decimal.
func size(b farm.Bytes) string {
	for _, u := range []struct {
		unit farm.Bytes
		name string
	}{{farm.TiB, "TiB"}, {farm.GiB, "GiB"}, {farm.MiB, "MiB"}, {farm.KiB, "KiB"}} {
		if b < u.unit {
			continue
		}
		n := float64(b) / float64(u.unit)
		if n >= 10 || n == float64(int(n)) {
			return fmt.Sprintf("%.0f %s", n, u.name)
		}
		return fmt.Sprintf("%.1f %s", n, u.name)
	}
	return fmt.Sprintf("%d bytes", uint64(b))
}
