package gateways

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/filebench"
	"github.com/grange-project/grange/internal/filebench/load"
	"github.com/grange-project/grange/internal/mounts"
	"github.com/grange-project/grange/internal/runner"
)

// target is where VMs have the directory, and guestProgram the load.
const (
	target       = "/bench"
	guestProgram = "/usr/sbin/grange-guest"
)

// measure measures as this process's user, in a directory that is gone afterwards.
func (a gatewayCommands) measure(ctx context.Context, f benchFlags, o load.Options) (m filebench.Measurement,
	err error) {
	work, err := os.MkdirTemp(f.dir, ".grange-bench-")
	if err != nil {
		return m, &farm.Error{Kind: farm.Invalid, Code: filebench.CodeBench, Err: err,
			Message: "no directory can be made to measure in", Hint: "name another --dir; root may name a --user"}
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	m.Time, m.Command = time.Now().UTC().Truncate(time.Second), f.command()
	if m.FileSystem, err = typeOf(work); err != nil {
		return m, err
	}
	m.Kernel = kernelRelease()
	all, left, err := filebench.Run(ctx, filebench.Options{Gateways: farm.Gateways, Rounds: f.rounds,
		Tell: func(what string) { fmt.Fprintln(a.Err, what) },
		One: func(ctx context.Context, g farm.Gateway) ([]filebench.Result, error) {
			part, accelerator, err := a.one(ctx, f.image, work, g, o)
			m.Accelerator = cmp.Or(accelerator, m.Accelerator)
			return part, err
		}})
	m.Results, m.Left = filebench.Medians(all), left
	m.Verdict = filebench.Recommend(m.Results)
	return m, err
}

// one measures one gateway in a VM of its own, in a directory below work.
func (a gatewayCommands) one(ctx context.Context, image, work string, g farm.Gateway,
	o load.Options) (results []filebench.Result, accelerator string, err error) {
	dir, err := os.MkdirTemp(work, string(g)+"-")
	if err != nil {
		return nil, "", err
	}
	in, err := os.Open(os.DevNull)
	if err != nil {
		return nil, "", err
	}
	defer in.Close()
	out, to, err := os.Pipe()
	if err != nil {
		return nil, "", err
	}
	defer out.Close()
	var made atomic.Pointer[api.VM]
	job, err := runner.New(api.JobRequest{Image: image, Argv: append([]string{guestProgram, load.Name}, o.Args()...)},
		runner.Options{Socket: a.Socket, Binds: []farm.Bind{{Source: dir, Target: target, Gateway: g}}, Stdin: in,
			Stdout: to, Stderr: os.Stderr, Notes: a.Err, Events: func(e api.JobEvent) {
				if e.VM != nil {
					made.Store(e.VM)
				}
			}})
	if err != nil {
		return nil, "", errors.Join(err, to.Close())
	}
	watched := make(chan error, 1)
	go func() {
		var err error
		results, err = filebench.Watch(out, string(g))
		watched <- err
	}()
	r := job.Run(ctx)
	to.Close()
	err = <-watched
	switch {
	case r.Err != nil:
		return nil, "", r.Err
	case r.Status != 0:
		return nil, "", fmt.Errorf("the load ended with status %d; the image %s must have grange-guest of this release",
			r.Status, image)
	case err != nil:
		return nil, "", fmt.Errorf("the load's output: %w", err)
	}
	if vm := made.Load(); vm != nil {
		accelerator = vm.Applied.Accelerator
	}
	return results, accelerator, nil
}

func kernelRelease() string {
	text, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return strings.TrimSpace(string(text))
}

// typeOf returns the type of a directory's file system as the kernel's table has it. The directory is not opened.
func typeOf(dir string) (string, error) {
	table, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	defer table.Close()
	all, err := mounts.All(table)
	dir, dirErr := filepath.EvalSymlinks(dir)
	if err = errors.Join(err, dirErr); err != nil {
		return "", err
	}
	m, found := mounts.Over(all, dir)
	if !found {
		return "", fmt.Errorf("the kernel's table has no mount that %s is on", dir)
	}
	return m.Type, nil
}
