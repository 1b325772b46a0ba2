package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/grange-project/grange/internal/gateway/features"
	"github.com/grange-project/grange/internal/gateway/gatewaytest"
)

// garbage has root of a VM write bytes of its own to the ports that grange-guest has. The job may end by it: what
// serves it may not crash, the agent goes on, and beside the directory nothing changes.
func (l *vmLab) garbage(ctx context.Context, g features.Gateway) error {
	ctx, cancel := context.WithTimeout(ctx, featureLimit)
	defer cancel()
	of := gatewaytest.Sessions()[0].Caller
	dir, err := l.directory(of)
	secret := filepath.Join(filepath.Dir(dir), "outside", "secret")
	err = errors.Join(err, os.Mkdir(filepath.Dir(secret), 0o777), os.WriteFile(secret, []byte("secret"), 0o666),
		os.Chmod(filepath.Dir(secret), 0o777), os.Chmod(secret, 0o666))
	if err != nil {
		return err
	}
	m, err := l.boot(ctx, dir, g, false, of, "garbage", "1")
	if err != nil {
		return err
	}
	if _, err := io.ReadFull(m.Out, make([]byte, len("garbage\n"))); err != nil {
		return fmt.Errorf("it does not begin: %w\n%s", err, m.end())
	}
	said := m.end() // ends it after a while, should nothing come through any more
	text, err := os.ReadFile(secret)
	entries, listed := os.ReadDir(filepath.Dir(secret))
	_, answered := l.host.Client.Host(ctx)
	switch {
	case errors.Join(err, listed, answered) != nil:
		return errors.Join(err, listed, answered)
	case strings.Contains(said, "panic:") || strings.Contains(said, "goroutine "):
		return fmt.Errorf("grange exec crashed: %s", said)
	case strings.Contains(l.host.AgentLog(), "panic:"):
		return errors.New("the agent crashed")
	case string(text) != "secret" || len(entries) != 1:
		return fmt.Errorf("beside the directory: %q, %v", text, entries)
	}
	if left := l.host.Leaks(ctx); len(left) > 0 {
		return fmt.Errorf("left: %s", strings.Join(left, "; "))
	}
	return nil
}
