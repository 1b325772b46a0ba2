package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/grange-project/grange/e2e/lab"
)

// linkedDirectory has an account name a directory of root's as an image, by a link in a directory of pull_images.
func linkedDirectory(ctx context.Context, s *site) error {
	const secret = "read-from-root"
	hidden := s.path("s12-root")
	if err := errors.Join(os.Mkdir(hidden, 0o700),
		os.WriteFile(filepath.Join(hidden, "secret"), []byte(secret), 0o600)); err != nil {
		return err
	}
	a, l, err := s.puller(ctx, "dir:", hidden)
	if err != nil {
		return err
	}
	out, err := a.command(ctx, l.Binary, "--socket", l.Socket, "exec", "--cpus", "1", "--memory", "192M", "--image",
		"dir:"+a.home+"/mine", "--", "true").CombinedOutput()
	if _, gone := l.Client.Image(ctx, "dir:"+a.home+"/mine"); gone == nil {
		return breach("root made an image of a directory of its own for another account: %v: %s", err, out)
	}
	return refusedPull(out, err)
}

// linkedFile has an account learn of a file of root's in the same way.
func linkedFile(ctx context.Context, s *site) error {
	hidden := s.path("s12-file")
	if err := os.WriteFile(hidden, []byte(strings.Repeat("secret", 1000)), 0o600); err != nil {
		return err
	}
	a, l, err := s.puller(ctx, "sif:", hidden)
	if err != nil {
		return err
	}
	out, err := a.command(ctx, l.Binary, "--socket", l.Socket, "exec", "--cpus", "1", "--memory", "192M", "--image",
		"sif:"+a.home+"/mine", "--", "true").CombinedOutput()
	if strings.Contains(string(out), "[bad-image]") {
		return breach("root read a file of its own for another account: %s", out)
	}
	return refusedPull(out, err)
}

// puller is an account with a host where pull_images has the account's home, and a link there to what root has.
func (s *site) puller(ctx context.Context, scheme, to string) (*account, *lab.Lab, error) {
	a, err := s.account(12)
	if err != nil {
		return nil, nil, err
	}
	link := filepath.Join(a.home, "mine")
	os.Remove(link)
	if out, err := a.command(ctx, "ln", "-s", to, link).CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("%w: %s", err, out)
	}
	l, err := s.start(ctx, lab.Options{Config: fmt.Sprintf("pull_images = [%q]\n", scheme+a.home+"/")})
	return a, l, err
}

func refusedPull(out []byte, err error) error {
	if err == nil || !strings.Contains(string(out), "[image-not-fetched]") {
		return fmt.Errorf("not refused as an image that is not the account's to fetch: %v: %s", err, out)
	}
	return nil
}
