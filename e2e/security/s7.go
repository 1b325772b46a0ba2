package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	hangers  = 4 // processes that connect to the port and hang up
	portAsks = 5
)

// floodedPort has an account connect to another one's published port and hang up without end, and the owner ask for an
// answer beside it.
func floodedPort(ctx context.Context, s *site) error {
	l, err := s.lab(ctx)
	if err != nil {
		return err
	}
	owner, err := s.account(2)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	job := owner.exec(ctx, l, "--cpus", "1", "--memory", "192M", "--bind", s.dir+":"+s.dir+":ro", "--publish", "8080",
		"--", owner.self, actFlag, "serve", "127.0.0.1:8080", "answer")
	said, err := follow(job)
	if err != nil {
		return err
	}
	defer job.Wait()
	defer stop()
	at, err := said.port(ctx)
	if err != nil {
		return err
	}
	ask := func() (string, error) {
		out, err := owner.act(ctx, "get", "http://"+at+"/").CombinedOutput()
		return string(out), err
	}
	for { // the server starts
		out, err := ask()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the owner is not answered, without any flood: %w: %s", err, out)
		}
	}
	stranger, err := s.account(7)
	if err != nil {
		return err
	}
	var ends sync.WaitGroup
	defer ends.Wait()
	defer stop()
	for range hangers {
		cmd := stranger.command(ctx, "nice", "-n", "19", stranger.self, actFlag, "hang-up", at)
		if err := cmd.Start(); err != nil {
			return err
		}
		ends.Go(func() { cmd.Wait() })
	}
	time.Sleep(2 * time.Second)
	answers := 0
	var last string
	for range portAsks {
		if out, err := ask(); err == nil && strings.Contains(out, "answer") {
			answers++
		} else {
			last = fmt.Sprint(out, err)
		}
	}
	if answers < portAsks {
		return breach("the owner got %d answers of %d: %s", answers, portAsks, last)
	}
	return nil
}

// port is the address at which a port of the VM is published.
func (l *lines) port(ctx context.Context) (string, error) {
	for {
		l.mu.Lock()
		text := l.text.String()
		l.mu.Unlock()
		if before, _, ok := strings.Cut(text, " here, for you alone"); ok {
			return before[strings.LastIndex(before, " ")+1:], nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("nothing is published: %w: %s", context.Cause(ctx), text)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// get is a role: ask a URL, and print the answer.
func get(args []string) error {
	client := http.Client{Timeout: 10 * time.Second}
	r, err := client.Get(args[0])
	if err != nil {
		return err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	fmt.Print(string(text))
	return err
}

// hangUp is a role: connect and hang up without end.
func hangUp(args []string) error {
	var at syscall.SockaddrInet4
	var port int
	if _, err := fmt.Sscanf(args[0], "%d.%d.%d.%d:%d", &at.Addr[0], &at.Addr[1], &at.Addr[2], &at.Addr[3],
		&port); err != nil {
		return err
	}
	at.Port = port
	for {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		syscall.Connect(fd, &at) // no port may be free for a moment
		syscall.Close(fd)
	}
}
