package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// page is one document: what it shows as code, and its prose.
type page struct {
	name  string // from the root of the repository
	text  string
	spans []snippet // code within lines, its line breaks as blanks
	fence []block
}

// snippet is a piece of code, with the line of the page that it begins on.
type snippet struct {
	line int
	text string
}

// block is what stands between two lines of ```.
type block struct {
	snippet
	language string
}

// pages are the documents that state something of the program as it is. The changelog tells what was, and the page of
// the commands is made of the commands.
func pages(root string) ([]page, error) {
	var all []page
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "SECURITY.md"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		all = append(all, parse(name, string(text)))
	}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".md" {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil || name == "docs/reference/cli.md" {
			return err
		}
		text, err := os.ReadFile(path)
		all = append(all, parse(name, string(text)))
		return err
	})
	return all, err
}

var span = regexp.MustCompile("`([^`]+)`")

// parse cuts a page into prose, spans and blocks.
func parse(name, text string) page {
	p := page{name: name, text: text}
	var prose, inside strings.Builder
	fenced, from, language := false, 0, ""
	for i, line := range strings.Split(text, "\n") {
		mark, isMark := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isMark && fenced:
			p.fence = append(p.fence, block{snippet{from, inside.String()}, language})
			inside.Reset()
			fenced = false
		case isMark:
			fenced, from, language = true, i+2, mark
		case fenced:
			inside.WriteString(line + "\n")
		default:
			prose.WriteString(line)
		}
		prose.WriteString("\n")
	}
	for _, at := range span.FindAllStringSubmatchIndex(prose.String(), -1) {
		code := prose.String()[at[2]:at[3]]
		if strings.Contains(code, "\n\n") {
			continue // an odd mark, and not a span
		}
		p.spans = append(p.spans, snippet{1 + strings.Count(prose.String()[:at[2]], "\n"),
			strings.Join(strings.Fields(code), " ")})
	}
	return p
}
