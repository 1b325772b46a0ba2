// Command streams runs many jobs that copy a megabyte of input to their output, several at a time, and checks every
// byte and the agent's memory. The last line is JSON; it fails when a byte is wrong or anything is left.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/e2e/lastline"
)

// figures is the line at the end.
type figures struct {
	Jobs       int     `json:"jobs"`
	AtOnce     int     `json:"at_once"`
	Bytes      int     `json:"bytes"` // each way, of each job
	Wrong      int     `json:"wrong"`
	Leaked     int     `json:"leaked"`
	Seconds    float64 `json:"seconds"`
	AgentFirst uint64  `json:"agent_bytes_first"` // resident memory after the first tenth of the jobs
	AgentLast  uint64  `json:"agent_bytes_last"`
	AgentMost  uint64  `json:"agent_bytes_most"`
}

func main() {
	f := figures{}
	flag.IntVar(&f.Jobs, "jobs", 100, "how many jobs")
	flag.IntVar(&f.AtOnce, "at-once", 4, "callers at the same time")
	flag.IntVar(&f.Bytes, "bytes", 1<<20, "input of each job")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := f.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "streams:", err)
		os.Exit(1)
	}
}

func (f *figures) run(ctx context.Context) error {
	fmt.Println("building, starting libvirtd and the agent, building the micro image")
	l, err := lab.Start(ctx, lab.Options{})
	if err != nil {
		return err
	}
	defer l.Close()
	began := time.Now()
	f.all(ctx, l)
	f.Seconds = time.Since(began).Seconds()
	left := l.Leaks(ctx)
	f.Leaked = len(left)
	err = lastline.Print(f, f.Wrong+f.Leaked)
	if f.Wrong+f.Leaked > 0 {
		err = errors.Join(err, fmt.Errorf("%d jobs went wrong; left: %v", f.Wrong, left))
	}
	return err
}

// all runs the jobs and looks at the agent's memory after each.
func (f *figures) all(ctx context.Context, l *lab.Lab) {
	var callers sync.WaitGroup
	var mu sync.Mutex
	next, done := make(chan int), 0
	for range f.AtOnce {
		callers.Go(func() {
			for i := range next {
				err := copyThrough(ctx, l, i, f.Bytes)
				h, hostErr := l.Client.Host(ctx)
				mu.Lock()
				done++
				if err = errors.Join(err, hostErr); err != nil {
					f.Wrong++
					fmt.Println(err)
				}
				f.AgentLast, f.AgentMost = h.AgentMemory, max(f.AgentMost, h.AgentMemory)
				if done == (f.Jobs+9)/10 {
					f.AgentFirst = h.AgentMemory
				}
				if done%10 == 0 {
					fmt.Printf("%3d jobs done, %d wrong, agent %.1f MB\n", done, f.Wrong, float64(h.AgentMemory)/1e6)
				}
				mu.Unlock()
			}
		})
	}
	for i := range f.Jobs {
		next <- i
	}
	close(next)
	callers.Wait()
}

// copyThrough runs one job on bytes of its own.
func copyThrough(ctx context.Context, l *lab.Lab, number, size int) error {
	input := make([]byte, size)
	for i, r := 0, rand.New(rand.NewPCG(uint64(number), 5)); i < size; i++ {
		input[i] = byte(r.Uint32())
	}
	cmd := l.Exec(ctx, "--memory", "512M", "--", "cat")
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &errs
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("job %d: %w: %s", number, err, errs.String())
	}
	if !bytes.Equal(out.Bytes(), input) {
		return fmt.Errorf("job %d: %d bytes came back, not the %d that went in", number, out.Len(), size)
	}
	return nil
}
