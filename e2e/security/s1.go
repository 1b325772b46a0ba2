package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/lab"
)

// halfOfHost has two VMs take all CPUs.
func halfOfHost() []string {
	return []string{"--cpus", fmt.Sprint((runtime.NumCPU() + 1) / 2), "--memory", "192M", "--", "sh", "-c",
		"echo RUNS; exec sleep 600"}
}

// cpusOfSubordinates has one account ask for all CPUs as two users of a user namespace.
func cpusOfSubordinates(ctx context.Context, s *site) error {
	return s.allBySubordinates(ctx, func(h *holder, l *lab.Lab, n int) (*exec.Cmd, error) {
		return h.as(ctx, l, n, append([]string{l.Binary, "exec"}, halfOfHost()...)...), nil
	})
}

// cpusOfFiles has it do so by two files with the set-user-ID bit, which leave the account's user namespace.
func cpusOfFiles(ctx context.Context, s *site) error {
	return s.allBySubordinates(ctx, func(h *holder, l *lab.Lab, n int) (*exec.Cmd, error) {
		return h.byFile(ctx, l, n, append([]string{l.Binary, "exec"}, halfOfHost()...)...)
	})
}

func (s *site) allBySubordinates(ctx context.Context, ask func(*holder, *lab.Lab, int) (*exec.Cmd, error)) error {
	if runtime.NumCPU() < 2 {
		return nil // there is nothing to share
	}
	h, err := s.holder(ctx)
	if err != nil {
		return err
	}
	l, err := h.host(ctx, s, lab.Options{})
	if err != nil {
		return err
	}
	var cmds []*exec.Cmd
	for n := 1; n <= 2; n++ {
		cmd, err := ask(h, l, n)
		if err != nil {
			return err
		}
		cmds = append(cmds, cmd)
	}
	return s.holdAll(ctx, l, cmds, "--memory", "192M")
}

// guestsOfSubordinates has two users of one account start VMs of two images that cannot come up, and another account
// start one after that.
func guestsOfSubordinates(ctx context.Context, s *site) error {
	h, err := s.holder(ctx)
	if err != nil {
		return err
	}
	l, err := h.host(ctx, s, lab.Options{Config: fewAttempts})
	if err != nil {
		return err
	}
	if _, err := l.Client.MakeImage(ctx, api.ImageRequest{Name: "second"}, func(string) {}); err != nil {
		return err
	}
	for n, image := range []string{"micro", "second", "micro"} {
		cmd := h.as(ctx, l, n+1, l.Binary, "exec", "--memory", "64M", "--image", image, "--no-wait", "--", "true")
		if out, err := cmd.CombinedOutput(); err == nil {
			return fmt.Errorf("a VM with too little memory runs: %s", out)
		}
	}
	victim, err := s.account(2)
	if err != nil {
		return err
	}
	if out, err := victim.exec(ctx, l, "--", "true").CombinedOutput(); err != nil {
		return breach("another account gets no VM: %v: %s", err, out)
	}
	return nil
}

const (
	unfinished   = 8 // large requests
	requestSize  = 126 << 20
	leftOut      = 2 << 20
	mostResident = 900 << 20 // of an agent that reads one of them, or a few
)

// memoryOfSubordinates has many users of one account send large requests, all but the last bytes.
func memoryOfSubordinates(ctx context.Context, s *site) error {
	h, err := s.holder(ctx)
	if err != nil {
		return err
	}
	l, err := h.host(ctx, s, lab.Options{NoImage: true})
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, 40*time.Second) // of the minute that the agent gives a request
	defer stop()
	sent := make(chan error, unfinished)
	for n := range unfinished {
		cmd := h.as(ctx, l, n+1, h.self, actFlag, "body", l.Socket)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			return err
		}
		defer cmd.Wait()
		defer stop()
		go func() {
			_, err := bufio.NewReader(out).ReadString('\n')
			sent <- err
		}()
	}
	if err := <-sent; err != nil {
		return fmt.Errorf("not one request was read: %w", err)
	}
	all := 1
	for {
		resident, err := residentOf(l.AgentPID())
		if err != nil {
			return err
		}
		if resident > mostResident {
			return breach("requests of one account take %d MiB of the agent's memory", resident>>20)
		}
		select {
		case err := <-sent:
			if all++; err == nil && all == unfinished {
				return fmt.Errorf("all requests were read, and the agent has %d MiB", resident>>20)
			}
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil
		}
	}
}

// residentOf is the most memory that a process has had.
func residentOf(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if size, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(size), "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("no VmHWM")
}

// body is a role: send a large request, all but its last bytes.
func body(args []string) error {
	conn, err := net.Dial("unix", args[0])
	if err != nil {
		return err
	}
	fmt.Fprintf(conn, "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n{\"Dir\":\"", requestSize)
	piece := []byte(strings.Repeat("x", 1<<20))
	for sent := 0; sent < requestSize-leftOut; sent += len(piece) {
		if _, err := conn.Write(piece); err != nil {
			return err
		}
	}
	fmt.Println("sent")
	io.Copy(io.Discard, conn)
	return nil
}

// filesOfSubordinates has users of one account take as many connections as each gets, of an agent that may have few
// files open, and another account ask beside them.
func filesOfSubordinates(ctx context.Context, s *site) error {
	h, err := s.holder(ctx)
	if err != nil {
		return err
	}
	return s.crowd(ctx, h, func(ctx context.Context, l *lab.Lab, n int) (*exec.Cmd, error) {
		return h.as(ctx, l, n+1, h.self, actFlag, "crowd", l.Socket), nil
	})
}

// filesOfAccounts has as many accounts do so.
func filesOfAccounts(ctx context.Context, s *site) error {
	h, err := s.holder(ctx)
	if err != nil {
		return err
	}
	return s.crowd(ctx, h, func(ctx context.Context, l *lab.Lab, n int) (*exec.Cmd, error) {
		a, err := s.account(100 + n)
		if err != nil {
			return nil, err
		}
		return a.act(ctx, "crowd", l.Socket), nil
	})
}

const (
	crowds     = 12
	crowdFiles = 2000 // that the agent may have open
	crowdAsks  = 20
)

func (s *site) crowd(ctx context.Context, h *holder,
	join func(ctx context.Context, l *lab.Lab, n int) (*exec.Cmd, error)) error {
	l, err := h.host(ctx, s, lab.Options{NoImage: true}, "prlimit", fmt.Sprintf("--nofile=%d:%[1]d", crowdFiles))
	if err != nil {
		return err
	}
	crowded, stop := context.WithCancel(ctx)
	defer stop()
	for n := range crowds {
		cmd, err := join(crowded, l, n)
		if err != nil {
			return err
		}
		defer cmd.Wait()
		defer stop()
		if _, err := begin(cmd); err != nil {
			return fmt.Errorf("a crowd: %w", err)
		}
	}
	victim, err := s.account(2)
	if err != nil {
		return err
	}
	for n := range crowdAsks {
		asking, cancel := context.WithTimeout(ctx, 10*time.Second)
		out, err := victim.command(asking, filepath.Join(s.programs, "grange"), "--socket", l.Socket, "vm", "list",
			"--local").CombinedOutput()
		cancel()
		if err != nil {
			return breach("call %d of another account: %v: %s", n+1, err, out)
		}
	}
	return nil
}

// crowd is a role: keep as many connections with half a request as one gets, and make each that was closed again.
func crowd(args []string) error {
	const connections = 250
	held := make([]int, connections)
	for n := range held {
		held[n] = half(args[0])
	}
	fmt.Println("connected")
	for {
		for n, fd := range held {
			if _, err := syscall.Write(fd, []byte("X: y\r\n")); err != nil {
				syscall.Close(fd)
				held[n] = half(args[0])
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// half connects and sends half a request; -1 where that fails.
func half(socket string) int {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: socket}); err != nil {
		syscall.Close(fd)
		return -1
	}
	syscall.Write(fd, []byte("GET /v1/host HTTP/1.1\r\n"))
	return fd
}
