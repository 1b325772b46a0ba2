package apply

import (
	"fmt"
	"strings"
)

// around is how many equal lines stand around a change.
const around = 3

// line of a diff: ' ', '-' or '+' before its text.
type line struct {
	mark byte
	text string
}

// unified is the difference of two texts as `diff -u` writes it, without its two header lines; "" when they are equal.
func unified(old, new string) string {
	if old == new {
		return ""
	}
	lines := compare(split(old), split(new))
	var b strings.Builder
	a, c := 0, 0 // lines of old and new before lines[i]
	for i := 0; i < len(lines); {
		if lines[i].mark == ' ' {
			i, a, c = i+1, a+1, c+1
			continue
		}
		from, to := max(0, i-around), hunkEnd(lines, i)
		back := i - from
		writeHunk(&b, lines[from:to], a-back, c-back)
		for ; i < to; i++ {
			if lines[i].mark != '+' {
				a++
			}
			if lines[i].mark != '-' {
				c++
			}
		}
	}
	return b.String()
}

// hunkEnd is where the hunk that has a change at i ends: changes closer than twice that share one.
func hunkEnd(lines []line, i int) int {
	last := i
	for j := i; j < len(lines) && j-last <= 2*around; j++ {
		if lines[j].mark != ' ' {
			last = j
		}
	}
	return min(len(lines), last+around+1)
}

func writeHunk(b *strings.Builder, lines []line, oldStart, newStart int) {
	oldCount, newCount := 0, 0
	for _, l := range lines {
		if l.mark != '+' {
			oldCount++
		}
		if l.mark != '-' {
			newCount++
		}
	}
	fmt.Fprintf(b, "@@ -%s +%s @@\n", hunkRange(oldStart, oldCount), hunkRange(newStart, newCount))
	for _, l := range lines {
		fmt.Fprintf(b, "%c%s", l.mark, l.text)
		if !strings.HasSuffix(l.text, "\n") {
			b.WriteString("\n\\ No newline at end of file\n")
		}
	}
}

func hunkRange(before, count int) string {
	start := before + 1
	if count == 0 {
		start = before
	}
	return fmt.Sprintf("%d,%d", start, count)
}

func split(s string) []string {
	lines := strings.SplitAfter(s, "\n")
	return lines[:len(lines)-1+min(1, len(lines[len(lines)-1]))] // nothing follows the last newline
}

// maxMatrix bounds the table of compare; beyond it the differing middle is shown as replaced whole.
const maxMatrix = 4 << 20

// compare aligns two texts on their longest common sequence of lines.
func compare(old, new []string) []line {
	head := 0
	for head < len(old) && head < len(new) && old[head] == new[head] {
		head++
	}
	tail := 0
	for tail < len(old)-head && tail < len(new)-head && old[len(old)-1-tail] == new[len(new)-1-tail] {
		tail++
	}
	var out []line
	add := func(mark byte, texts []string) {
		for _, t := range texts {
			out = append(out, line{mark, t})
		}
	}
	add(' ', old[:head])
	a, b := old[head:len(old)-tail], new[head:len(new)-tail]
	if len(a)*len(b) > maxMatrix {
		add('-', a)
		add('+', b)
	} else {
		out = append(out, align(a, b)...)
	}
	add(' ', old[len(old)-tail:])
	return out
}

func align(a, b []string) []line {
	common := make([][]int, len(a)+1) // longest common sequence of a[i:] and b[j:]
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out []line
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, line{' ', a[i]})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			out = append(out, line{'-', a[i]})
			i++
		default:
			out = append(out, line{'+', b[j]})
			j++
		}
	}
	return out
}
