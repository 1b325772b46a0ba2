package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/e2e/lab"
)

// builds are directories, each with the programs of one release.
type builds struct {
	from, to string // commits
	old, now string
	later    string // of this tree, if the protocol had changed three times since
}

// tooFar is one more than what works together.
const tooFar = 3

func grange(dir string) string { return filepath.Join(dir, "grange") }

// build makes all programs as a release is made. The older tree is taken out of the repository and goes away with dir.
func build(ctx context.Context, dir, from string) (b builds, err error) {
	top := lab.Source()
	if b.from, err = lab.Commit(ctx, from); err != nil {
		return b, err
	}
	if b.to, err = lab.Commit(ctx, "HEAD"); err != nil {
		return b, err
	}
	if changes, err := lab.Git(ctx, "status", "--porcelain"); err != nil || changes != "" {
		b.to += ", changed"
	}
	fmt.Printf("building %s and this tree, %s\n", b.from, b.to)
	b.old, b.now, b.later = filepath.Join(dir, "old"), filepath.Join(dir, "now"), filepath.Join(dir, "later")
	source := filepath.Join(dir, "source")
	if err := lab.TakeOut(ctx, b.from, source); err != nil {
		return b, err
	}
	if err := lab.BuildFrom(ctx, source, b.old); err != nil {
		return b, fmt.Errorf("the older commit %s: %w", b.from, err)
	}
	if err := lab.Build(ctx, b.now); err != nil {
		return b, err
	}
	overlay, err := laterProtocol(top, dir)
	if err != nil {
		return b, err
	}
	return b, lab.BuildFrom(ctx, top, b.later, "-overlay", overlay)
}

// capability is where the protocol's numbers are declared: this release's, and the oldest that it works with.
var capability = regexp.MustCompile(`(?m)^const (Capability|OldestCapability) = \d+$`)

// laterProtocol writes what `go build -overlay` wants, for a tree with a protocol that is too far ahead of this one.
func laterProtocol(top, dir string) (string, error) {
	file := filepath.Join(top, "api", "fleet", "host.go")
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if len(capability.FindAll(text, -1)) != 2 {
		return "", fmt.Errorf("%s does not declare Capability and OldestCapability on lines of their own", file)
	}
	changed := filepath.Join(dir, "host.go")
	if err := os.WriteFile(changed, capability.ReplaceAll(text,
		[]byte("const ${1} = "+strconv.Itoa(fleet.Capability+tooFar))), 0o644); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, overlay, 0o644)
}
