package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/grange-project/grange/e2e/metal/metallab"
)

// repeats are the hosts that the emulator may end, see metallab.Host.Cut.
const repeats = 2

// onMetal measures on an emulated host. What runs there is this program.
func onMetal(ctx context.Context, s setup, suite, packages string) (f figures, err error) {
	fmt.Println("building packages, and a host with them")
	l, err := metallab.Open()
	if err != nil {
		return f, err
	}
	debs, err := metallab.BuiltAgentDebs(ctx, packages)
	if err != nil {
		return f, err
	}
	dir, err := os.MkdirTemp("", "benchfiles")
	if err != nil {
		return f, err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "benchfiles")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", program, "./e2e/benchfiles")
	build.Dir, build.Env = metallab.Source(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return f, fmt.Errorf("build: %w\n%s", err, out)
	}
	for again := 0; ; again++ {
		f, cut, err := onHost(ctx, l, metallab.Options{Suite: suite, Debs: debs}, s, program)
		if !cut || again == repeats {
			return f, err
		}
		fmt.Println("the emulator ended the host; on another one:")
	}
}

// onHost measures on a host of its own. cut reports whether the emulator ended that.
func onHost(ctx context.Context, l *metallab.Lab, o metallab.Options, s setup, program string) (f figures, cut bool,
	err error) {
	h, err := l.Start(ctx, o)
	if err != nil {
		return f, false, err
	}
	defer h.Close()
	if err := h.Copy(ctx, "/root", program); err != nil {
		return f, h.Cut(), err
	}
	var out bytes.Buffer
	call := fmt.Sprintf("/root/benchfiles -here -size %s -files %d -time %s -rounds %d", s.Size, s.Files, s.Time,
		s.Rounds)
	if err := h.Command(ctx, call, nil, io.MultiWriter(os.Stdout, &out)); err != nil {
		return f, h.Cut(), err
	}
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	return f, false, json.Unmarshal(lines[len(lines)-1], &f)
}
