package archtest

import (
	"go/scanner"
	"go/token"
	"strings"
	"testing"
	"unicode/utf8"
)

// columns is how wide code and prose may be; a tab counts as tabWidth.
const (
	columns  = 120
	tabWidth = 4
)

func width(line string) int {
	return utf8.RuneCountInString(line) + (tabWidth-1)*strings.Count(line, "\t")
}

// TestColumnsOfCode finds lines that are too wide. What a string does beyond the border is its own affair: scripts,
// addresses and recorded output are not to be broken.
func TestColumnsOfCode(t *testing.T) {
	walk(t, ".go", func(name string, source []byte) {
		strung := stringsBeyond(source)
		for i, line := range strings.Split(string(source), "\n") {
			if w := width(line); w > columns && !strung[i+1] {
				t.Errorf("%s:%d has %d columns", name, i+1, w)
			}
		}
	})
}

// stringsBeyond are the lines on which a string crosses the border, or ends within a few columns of it.
func stringsBeyond(source []byte) map[int]bool {
	const near = 8 // what follows a string: a bracket or two, a comma
	lines := map[int]bool{}
	file := token.NewFileSet().AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, 0)
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return lines
		}
		if tok != token.STRING {
			continue
		}
		first := file.Line(pos)
		start := string(source[file.Offset(file.LineStart(first)):file.Offset(pos)])
		for i, part := range strings.Split(literal, "\n") {
			if i > 0 {
				start = ""
			}
			if i > 0 || strings.Contains(literal, "\n") || width(start+part) > columns-near {
				lines[first+i] = true
			}
		}
	}
}

// TestColumnsOfProse finds lines of Markdown that are too wide, outside of tables and of what is quoted as it was
// printed.
func TestColumnsOfProse(t *testing.T) {
	walk(t, ".md", func(name string, text []byte) {
		if name == "docs/reference/cli.md" { // made of the commands' own help
			return
		}
		quoted := false
		for i, line := range strings.Split(string(text), "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				quoted = !quoted
			}
			if w := width(line); w > columns && !quoted && !strings.HasPrefix(line, "|") {
				t.Errorf("%s:%d has %d columns", name, i+1, w)
			}
		}
	})
}
