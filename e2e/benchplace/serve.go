package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime/pprof"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server"
	"github.com/grange-project/grange/internal/store"
)

// serve is the measured process: a whole server on a database, and in it those who ask it for VMs. It writes its
// figures to out.
func serve(ctx context.Context, s settings, out io.Writer) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b, err := reopen(ctx, s.serve)
	if err != nil {
		return err
	}
	defer func() { err = errors(err, b.store.Close()) }()
	done := make(chan error, 1)
	b.farm = server.New(server.Options{Store: b.store,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		URL: "https://bench.example.org", Silence: 24 * time.Hour, CAKeyFile: s.serve + ".key"})
	go func() { done <- b.farm.Run(ctx) }()
	defer func() { cancel(); err = errors(err, <-done) }()
	f, err := b.loops(ctx, s)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(f)
}

// reopen opens a database that begin made.
func reopen(ctx context.Context, path string) (*bench, error) {
	b := newBench(path, 7)
	var err error
	if b.store, err = store.Open(ctx, path); err != nil {
		return nil, err
	}
	return b, b.store.View(ctx, func(t *store.Tx) error {
		err := t.EachVM(store.VMFilter{}, func(vm farm.VM) { b.vms = append(b.vms, vm.ID) })
		b.next = len(b.vms)
		return err
	})
}

// apart runs the loops in a process of their own: its CPU time and memory are the server's, and nothing of what made
// the database.
func apart(ctx context.Context, s settings) (f loopFigures, err error) {
	self, err := os.Executable()
	if err != nil {
		return f, err
	}
	cmd := exec.CommandContext(ctx, self, "-serve", s.serve, "-profile", s.profile, "-window", fmt.Sprint(s.window),
		"-refill", fmt.Sprint(s.refill), "-share", fmt.Sprint(s.share), "-seconds", fmt.Sprint(s.seconds))
	cmd.Env, cmd.Stderr = append(os.Environ(), asServer+"=1"), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return f, fmt.Errorf("the server's process: %w", err)
	}
	return f, json.Unmarshal(out, &f)
}

// asServer marks the environment of the server's process: a test binary has no main of ours.
const asServer = "BENCHPLACE_SERVE"

// profiled runs do, with a CPU profile of it in a file; "": without one.
func profiled(path string, do func() error) error {
	if path == "" {
		return do()
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := pprof.StartCPUProfile(file); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return do()
}

// cpuTime is what this process has taken so far.
func cpuTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
