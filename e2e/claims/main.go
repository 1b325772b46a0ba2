// Command claims compares what the documents state of the program with the program: command lines and flags, targets of
// the Makefile, keys of configurations, errors, metrics, alarms and rules by name, defaults and numbers, and what
// commands print about recorded hosts. The last line is JSON.
//
// It starts no program: commands that only read a recorded host run in it.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/grange-project/grange/e2e/lastline"
	"github.com/grange-project/grange/internal/cli"
)

// problem is something that a page states and that is not so.
type problem struct {
	page string
	line int
	text string
}

func (p problem) String() string { return fmt.Sprintf("%s:%d: %s", p.page, p.line, p.text) }

// figures are the line at the end: how many statements of each kind were compared.
type figures struct {
	Pages    int `json:"pages"`
	Commands int `json:"commands"`
	Names    int `json:"names"`
	Keys     int `json:"keys"`
	Values   int `json:"values"`   // defaults and numbers in sentences
	Examples int `json:"examples"` // commands that were run
}

func main() {
	root := flag.String("root", ".", "the `DIR` of the repository")
	flag.Parse()
	f, problems, err := compare(*root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "claims:", err)
		os.Exit(2)
	}
	for _, p := range problems {
		fmt.Println(p)
	}
	if err := lastline.Print(f, len(problems)); err != nil || len(problems) > 0 {
		os.Exit(1)
	}
}

// compare compares all pages below root.
func compare(root string) (f figures, problems []problem, err error) {
	all, err := pages(root)
	if err != nil {
		return f, nil, err
	}
	c, err := readCode(root)
	if err != nil {
		return f, nil, err
	}
	tree := cli.New(io.Discard)
	names, err := kinds(root, tree, c)
	if err != nil {
		return f, nil, err
	}
	f.Pages = len(all)
	add := func(count *int, n int, found []problem) {
		*count += n
		problems = append(problems, found...)
	}
	keys := keysOf(c)
	for _, p := range all {
		n, found := checkCommands(tree, p)
		add(&f.Commands, n, found)
		n, found = checkKeys(keys, p)
		add(&f.Keys, n, found)
		for _, k := range names {
			n, found = k.check(p)
			add(&f.Names, n, found)
		}
		n, found, err := checkExamples(root, p)
		if err != nil {
			return f, nil, err
		}
		add(&f.Examples, n, found)
	}
	n, found, err := checkStatements(root)
	add(&f.Values, n, found)
	return f, problems, err
}
