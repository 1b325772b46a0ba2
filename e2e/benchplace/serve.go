package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/server"
	"github.com/grange-project/grange/internal/store"
)

// used is what the server's process has taken so far, and holds.
type used struct {
	CPU time.Duration
	RSS float64 // MB
}

// What the server's process is told: a byte each.
const (
	tellWrote   = 'w' // the other process has committed something
	tellFigures = 'f' // it answers with used, as a line of JSON
)

// serve is the measured process: a whole server on the database, on one core. It ends at the end of in.
func serve(ctx context.Context, path, profile string, in io.Reader, out io.Writer) (err error) {
	runtime.GOMAXPROCS(1)
	s, err := store.Open(ctx, path)
	if err != nil {
		return err
	}
	defer func() { err = errors(err, s.Close()) }()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	farm := server.New(server.Options{Store: s, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})), URL: "https://bench.example.org", Silence: 24 * time.Hour})
	go func() { done <- farm.Run(ctx) }()
	defer func() { cancel(); err = errors(err, <-done) }()
	if profile != "" {
		file, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	return obey(ctx, s, in, out)
}

func obey(ctx context.Context, s *store.Store, in io.Reader, out io.Writer) error {
	buffer := make([]byte, 4096)
	for {
		n, err := in.Read(buffer)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		s.Look(ctx)
		for _, b := range buffer[:n] {
			if b != tellFigures {
				continue
			}
			rss, err := residentMB()
			if err == nil {
				err = json.NewEncoder(out).Encode(used{cpuTime(), rss})
			}
			if err != nil {
				return err
			}
		}
	}
}

// served is the server's process, as the other one has it.
type served struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// start starts the server's process.
func (b *bench) start(ctx context.Context, profile string) (*served, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &served{cmd: exec.CommandContext(ctx, self, "-serve", b.path, "-profile", profile)}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), asServer+"=1"), os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out, b.told = bufio.NewReader(out), p.in
	return p, p.cmd.Start()
}

// asServer marks the environment of the server's process: a test binary has no main of ours.
const asServer = "BENCHPLACE_SERVE"

// used asks it what it took.
func (p *served) used() (u used, err error) {
	if _, err := p.in.Write([]byte{tellFigures}); err != nil {
		return u, err
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return u, fmt.Errorf("the server's process: %w", err)
	}
	return u, json.Unmarshal(line, &u)
}

func (p *served) stop() error { return errors(p.in.Close(), p.cmd.Wait()) }

// cpuTime is what this process has taken so far.
func cpuTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
