package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/internal/deathsig"
	"github.com/grange-project/grange/internal/rawqemu"
)

// atOnce is how many VMs each side starts at the same time.
const atOnce = 2

// measureStarts counts VMs made and not yet running: the cost of making them, without any guest's boot.
func (f *figures) measureStarts(ctx context.Context, l *lab.Lab, n int) error {
	guest, err := rawGuest(l)
	if err != nil {
		return err
	}
	if f.RawStartsPerS, err = rate(n, func(int) error { return rawPaused(ctx, guest) }); err != nil {
		return err
	}
	f.StartsPerS, err = rate(n, func(i int) error { return pausedVM(ctx, l, func() error { return nil }) })
	fmt.Printf("paused VMs started per second: raw QEMU %.1f, through the agent %.1f\n", f.RawStartsPerS, f.StartsPerS)
	return err
}

// rate does n things, atOnce at a time, and returns how many a second.
func rate(n int, do func(int) error) (float64, error) {
	var wg sync.WaitGroup
	next, errs := make(chan int), make(chan error, n)
	began := time.Now()
	for range atOnce {
		wg.Go(func() {
			for i := range next {
				errs <- do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	took := time.Since(began)
	close(errs)
	for err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return float64(n) / took.Seconds(), nil
}

// rawPaused starts QEMU stopped, waits until it answers, and kills it.
func rawPaused(ctx context.Context, guest rawqemu.Guest) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := rawqemu.Command(ctx, guest, "-S", "-serial", "null", "-qmp", "stdio")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := deathsig.Start(cmd, syscall.SIGKILL); err != nil {
		return err
	}
	defer func() { cancel(); cmd.Wait() }()
	greeting, err := bufio.NewReader(out).ReadString('\n')
	if err == nil && !strings.Contains(greeting, "QMP") {
		err = fmt.Errorf("QEMU greets with %q", greeting)
	}
	return err
}

// pausedVM has the agent make a VM, calls with while it is there, and gives it back.
func pausedVM(ctx context.Context, l *lab.Lab, with func() error) error {
	request := api.JobRequest{ID: api.NewID(), Argv: []string{"true"}, Dir: "/", Paused: true}
	made := false
	err := l.Client.Job(ctx, request, func(e api.JobEvent) error {
		switch {
		case e.Problem != nil:
			return e.Problem
		case e.Event != api.EventPaused:
			return nil
		}
		made = true
		if err := with(); err != nil {
			return err
		}
		go l.Client.Done(ctx, request.ID)
		return nil
	})
	if err == nil && !made {
		err = fmt.Errorf("the agent made no VM")
	}
	return err
}

// measureMemory compares the agent's memory with and without VMs.
func (f *figures) measureMemory(ctx context.Context, l *lab.Lab) error {
	h, err := l.Client.Host(ctx)
	if err != nil {
		return err
	}
	f.AgentBytesIdle = h.AgentMemory
	var full uint64
	err = pausedVM(ctx, l, func() error {
		return pausedVM(ctx, l, func() error {
			h, err := l.Client.Host(ctx)
			full = h.AgentMemory
			return err
		})
	})
	f.AgentBytesPer = (int64(full) - int64(f.AgentBytesIdle)) / atOnce
	return err
}
