package metallab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Packages returns a directory with deb packages: dir, or where that is empty, those that are built of this tree.
func Packages(ctx context.Context, dir string) (string, error) {
	if dir == "" {
		cmd := exec.CommandContext(ctx, "make", "-s", "-C", Source(), "packages")
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			return "", fmt.Errorf("make packages: %w", err)
		}
		dir = filepath.Join(Source(), "dist")
	}
	return filepath.Abs(dir)
}

// AgentDebs are the packages of a directory that every host has.
func AgentDebs(dist string) ([]string, error) {
	debs, err := filepath.Glob(filepath.Join(dist, "grange_*.deb"))
	if err == nil && len(debs) != 1 {
		err = fmt.Errorf("%d packages of the agent in %s: make packages", len(debs), dist)
	}
	return debs, err
}

// BuiltAgentDebs are those of Packages.
func BuiltAgentDebs(ctx context.Context, dir string) ([]string, error) {
	dist, err := Packages(ctx, dir)
	if err != nil {
		return nil, err
	}
	return AgentDebs(dist)
}

// StartInstalled builds the packages of this tree, says so, and starts a host that has them.
func StartInstalled(ctx context.Context, o Options) (*Host, error) {
	fmt.Println("building packages, and a host with them")
	l, err := Open()
	if err != nil {
		return nil, err
	}
	if o.Debs, err = BuiltAgentDebs(ctx, ""); err != nil {
		return nil, err
	}
	return l.Start(ctx, o)
}
