// Command claims compares what the documents state of the program with the program: command lines and flags, targets of
// the Makefile, keys of configurations, errors, metrics, alarms and rules by name, defaults and numbers, and what
// commands print about recorded hosts. The last line is JSON.
//
// It runs in the root of the repository, and starts nothing.
package main

import (
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
}

func main() {
	f, problems, err := compare(".")
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
func compare(root string) (figures, []problem, error) {
	all, err := pages(root)
	if err != nil {
		return figures{}, nil, err
	}
	f := figures{Pages: len(all)}
	tree := cli.New(io.Discard)
	names, err := kinds(root, tree)
	if err != nil {
		return f, nil, err
	}
	var problems []problem
	for _, p := range all {
		n, found := checkCommands(tree, p)
		f.Commands += n
		problems = append(problems, found...)
		for _, k := range names {
			n, found := k.check(p)
			f.Names += n
			problems = append(problems, found...)
		}
	}
	return f, problems, nil
}
