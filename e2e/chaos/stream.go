package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"sync"
	"time"

	"github.com/grange-project/grange/e2e/lab"
)

// atOnce is how many callers ask for VMs at the same time: more than a small host has room for, so that some wait.
const atOnce = 3

// stream is an endless stream of jobs, several at a time. Each copies its input twice, to both outputs, slowly enough
// to be hit, and ends with a status of its own.
type stream struct {
	lab     *lab.Lab
	stop    context.CancelFunc
	callers sync.WaitGroup

	mu      sync.Mutex
	running map[*exec.Cmd]*caller
	silent  time.Duration // the longest time in which a caller had nothing to read
	jobs    int
	lost    int
	wrong   int
}

type caller struct{ killed bool }

func newStream(ctx context.Context, l *lab.Lab, seed uint64) *stream {
	ctx, stop := context.WithCancel(ctx)
	s := &stream{lab: l, stop: stop, running: map[*exec.Cmd]*caller{}}
	for i := range atOnce {
		s.callers.Go(func() {
			for r := rand.New(rand.NewPCG(seed, uint64(100+i))); ctx.Err() == nil; {
				s.one(r)
			}
		})
	}
	return s
}

// finish lets the jobs that run come to their end.
func (s *stream) finish() {
	s.stop()
	s.callers.Wait()
}

// abort kills all callers.
func (s *stream) abort() {
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for cmd, c := range s.running {
		c.killed = true
		cmd.Process.Kill()
	}
}

func (s *stream) one(r *rand.Rand) {
	input := make([]byte, r.IntN(200_000))
	for i := range input {
		input[i] = byte(r.Uint32())
	}
	status := r.IntN(100)
	script := fmt.Sprintf("tee /dev/stderr; sleep 0.%d; exit %d", r.IntN(10), status)
	cmd := s.lab.Exec(context.Background(), "--memory", "256M", "--scratch", "16M", "--", "sh", "-c", script)
	var out, errs bytes.Buffer
	gaps := &gapMeter{last: time.Now()}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), gaps.on(&out), gaps.on(&errs)
	me := &caller{}
	s.mu.Lock()
	err := cmd.Start()
	if err == nil {
		s.running[cmd] = me
	}
	s.mu.Unlock()
	if err == nil {
		err = cmd.Wait()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, cmd)
	if me.killed {
		return
	}
	s.jobs++
	if gap := gaps.mark(); gap > s.silent {
		s.silent = gap
		if gap > mostSilent {
			fmt.Printf("%v without a word; notes of the caller: %q\n", gap.Round(time.Millisecond), notes(errs.Bytes()))
		}
	}
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		fmt.Println("caller:", err)
	}
	// Our own notes (waiting for the agent) stand before the job's errors, which are the input.
	whole := sha256.Sum256(out.Bytes()) == sha256.Sum256(input) && bytes.Contains(errs.Bytes(), input)
	if !whole {
		s.lost++
	}
	if cmd.ProcessState.ExitCode() != status {
		s.wrong++
	}
	if !whole || cmd.ProcessState.ExitCode() != status {
		fmt.Printf("status %d, want %d; %d of %d bytes out, %d errors; last: %.300q\n", cmd.ProcessState.ExitCode(),
			status, out.Len(), len(input), errs.Len(), errs.Bytes()[max(0, errs.Len()-300):])
	}
}

// killOne kills a caller with its job wherever that is; false when none runs.
func (s *stream) killOne(r *rand.Rand) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := 0
	if len(s.running) > 0 {
		at = r.IntN(len(s.running))
	}
	for cmd, c := range s.running {
		if at--; at >= 0 || c.killed {
			continue
		}
		c.killed = true
		cmd.Process.Kill()
		return true
	}
	return false
}

// notes are the wrapper's own lines among a job's errors.
func notes(errs []byte) []string {
	var out []string
	for line := range bytes.Lines(errs) {
		if bytes.HasPrefix(line, []byte("grange: ")) {
			out = append(out, string(bytes.TrimSpace(line)))
		}
	}
	return out
}

func (s *stream) silence() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.silent
}

// gapMeter measures how long a caller had nothing to read, on either output.
type gapMeter struct {
	mu      sync.Mutex
	last    time.Time
	longest time.Duration
}

func (m *gapMeter) on(to io.Writer) io.Writer {
	return writerFunc(func(p []byte) (int, error) { m.mark(); return to.Write(p) })
}

// mark notes that there was something to read, or the end, and returns the longest pause so far.
func (m *gapMeter) mark() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.longest = max(m.longest, now.Sub(m.last))
	m.last = now
	return m.longest
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func (s *stream) tally() (jobs, lost, wrong int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs, s.lost, s.wrong
}
