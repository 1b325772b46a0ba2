package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/grange-project/grange/e2e/lab"
)

// guide is docs/guide/grid.md: what it says to configure is what is tested.
type guide string

func readGuide() (guide, error) {
	text, err := os.ReadFile(filepath.Join(lab.Source(), "docs/guide/grid.md"))
	return guide(text), err
}

// file is the block of the guide that begins with the path of a file, as a comment.
func (g guide) file(path string) (string, error) {
	for _, rest := range strings.Split(string(g), "\n```")[1:] {
		_, block, _ := strings.Cut(rest, "\n")
		if first, _, _ := strings.Cut(block, "\n"); first == "# "+path {
			return block + "\n", nil
		}
	}
	return "", fmt.Errorf("docs/guide/grid.md has no block that begins with \"# %s\"", path)
}

// write writes that block where the guide says that it belongs.
func (g guide) write(path string) error {
	text, err := g.file(path)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}
