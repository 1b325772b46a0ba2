package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/filebench"
)

// setup is what the flags say.
type setup struct {
	Size, Time, SVG string
	Files, Rounds   int
}

// host is one with an agent.
type host struct {
	setup
	grange, socket, config string
	images                 string // the agent's
	kvm                    bool
}

// installed is the host that this program runs on.
func installed(s setup) host {
	return host{setup: s, grange: "/usr/bin/grange", socket: "/run/grange/agent.sock", config: "/etc/grange/agent.toml",
		images: "/var/lib/grange/images", kvm: true}
}

// measurer is who measures: virtiofs serves nothing of root.
const measurer = 65534

// run measures all in turns.
func (h host) run(ctx context.Context) (f figures, err error) {
	dir, err := os.MkdirTemp("/var/tmp", "benchfiles")
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	own := filepath.Join(dir, "own")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(own, 0o700), os.Chown(own, measurer, measurer)); err != nil {
		return f, err
	}
	f.Left = map[string]string{}
	var all []filebench.Result
	for round := range h.Rounds {
		fmt.Printf("round %d of %d\n", round+1, h.Rounds)
		part, err := h.round(ctx, dir, own, &f)
		if err != nil {
			return f, err
		}
		all = append(all, part...)
	}
	f.Results = filebench.Medians(all)
	if f.Best, f.Why, err = h.chosen(ctx, own); err != nil {
		return f, err
	}
	f.judge()
	return f, nil
}

func (h host) round(ctx context.Context, dir, own string, f *figures) ([]filebench.Result, error) {
	m, err := h.bench(ctx, own)
	if err != nil {
		return nil, err
	}
	f.Time, f.Kernel, f.Accelerator, f.FileSystem = m.Time, m.Kernel, m.Accelerator, m.FileSystem
	for g, why := range m.Left {
		f.Left[string(g)] = why
	}
	var all []filebench.Result
	for _, r := range m.Results {
		all = append(all, r.Result)
	}
	for _, u := range unsafe {
		if f.Left[u.name] != "" {
			continue
		}
		part, err := h.raw(ctx, dir, u)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			f.Left[u.name] = err.Error()
			fmt.Printf("%s is left out: %v\n", u.name, err)
			continue
		}
		all = append(all, part...)
	}
	return all, nil
}

// bench runs one round of `grange gateway bench`, as root.
func (h host) bench(ctx context.Context, dir string) (m filebench.Measurement, err error) {
	cmd := exec.CommandContext(ctx, h.grange, "gateway", "bench", "--json", "--socket", h.socket, "--config", h.config,
		"--dir", dir, "--size", h.Size, "--files", strconv.Itoa(h.Files), "--time", h.Time, "--rounds", "1")
	cmd.Stderr = os.Stdout
	out, err := cmd.Output()
	if err != nil {
		return m, fmt.Errorf("grange gateway bench: %w", err)
	}
	var all []filebench.Measurement
	if err := json.Unmarshal(out, &all); err != nil || len(all) != 1 {
		return m, fmt.Errorf("grange gateway bench printed %s: %w", out, err)
	}
	return all[0], nil
}

// chosen is what a bind gets that asks for auto, and why.
func (h host) chosen(ctx context.Context, dir string) (gateway, why string, err error) {
	cmd := exec.CommandContext(ctx, h.grange, "exec", "--json", "--socket", h.socket, "--bind",
		dir+":/data:gateway=auto", "--", "true")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: measurer, Gid: measurer}}
	var events bytes.Buffer
	cmd.Stderr = &events
	if err := cmd.Run(); err != nil {
		return "", "", fmt.Errorf("grange exec: %w\n%s", err, events.String())
	}
	for decoder := json.NewDecoder(&events); ; {
		var e api.JobEvent
		if decoder.Decode(&e) != nil {
			return "", "", errors.New("grange exec does not say how its bind came")
		}
		if e.VM != nil && len(e.VM.Binds) == 1 {
			return e.VM.Binds[0].Gateway, e.VM.Binds[0].Why, nil
		}
	}
}
