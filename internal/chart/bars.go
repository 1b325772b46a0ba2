package chart

import (
	"fmt"
	"html"
	"strings"
)

// Bar is one line of Bars.
type Bar struct {
	Group, Name string
	Value       float64
	Text        string // of the value, for people
}

// Bars draws bars side by side, in groups: the longest of each group is as wide as the picture lets it.
func Bars(title string, bars []Bar) string {
	const left, wide, high = 190, 420, 18
	most := map[string]float64{}
	for _, b := range bars {
		most[b.Group] = max(most[b.Group], b.Value)
	}
	var s strings.Builder
	y, last := 44, ""
	text := func(x, y int, class, words string) {
		fmt.Fprintf(&s, "<text x=\"%d\" y=\"%d\" class=\"%s\">%s</text>\n", x, y, class, html.EscapeString(words))
	}
	text(8, 22, "title", title)
	for _, b := range bars {
		if b.Group != last {
			y, last = y+12, b.Group
			text(8, y, "group", b.Group)
			y += 6
		}
		width := 0
		if m := most[b.Group]; m > 0 {
			width = int(b.Value / m * wide)
		}
		text(20, y+13, "name", b.Name)
		fmt.Fprintf(&s, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", left, y+2, max(width, 1), high-6)
		text(left+width+6, y+13, "name", b.Text)
		y += high
	}
	return fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" role=\"img\">\n<style>"+
		"text{font:12px sans-serif;fill:#222}.title{font-weight:bold;font-size:14px}.group{font-weight:bold}"+
		"rect{fill:#4878a8}</style>\n<rect width=\"100%%\" height=\"100%%\" style=\"fill:#fff\"/>\n%s</svg>\n",
		left+wide+120, y+20, s.String())
}
