package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/lab"
)

// Of a flood, as an account can make it without any right.
const (
	flooders    = 16 // processes
	answerCalls = 100
	answerTime  = 2 * time.Second // in which each call is answered, beside what starting a program takes then
)

// floodedAgent has an account connect to the agent's socket and hang up without end.
func floodedAgent(ctx context.Context, s *site) error { return s.floodAgent(ctx, "close") }

// crowdedAgent has an account keep as many connections with half a request as it gets.
func crowdedAgent(ctx context.Context, s *site) error { return s.floodAgent(ctx, "hold") }

func (s *site) floodAgent(ctx context.Context, how string) error {
	l, err := s.start(ctx, lab.Options{NoImage: true})
	if err != nil {
		return err
	}
	end, err := s.flood(ctx, l.Socket, how)
	if err != nil {
		return err
	}
	defer end()
	user, err := s.account(2)
	if err != nil {
		return err
	}
	grange := filepath.Join(s.programs, "grange")
	key := 0
	return s.served(ctx,
		caller{"root's `batch claim`", func() *exec.Cmd {
			key++
			return l.Grange(ctx, "batch", "claim", "--key", fmt.Sprint("gridengine/", key), "--cpus", "0",
				"--memory", "1M")
		}},
		caller{"another account's `vm list`", func() *exec.Cmd {
			return user.command(ctx, grange, "--socket", l.Socket, "vm", "list", "--local")
		}})
}

// floodedServer has an account connect to the server's socket and hang up without end.
func floodedServer(ctx context.Context, s *site) error { return s.floodServer(ctx, "close") }

// crowdedServer has an account keep as many connections with half a request as it gets.
func crowdedServer(ctx context.Context, s *site) error { return s.floodServer(ctx, "hold") }

// readerOfCell lets ann list the cell.
const readerOfCell = standaloneFarm + `
[[grants]]
user = "ann"
role = "reader"
cell = "general"
`

func (s *site) floodServer(ctx context.Context, how string) error {
	a, err := s.standalone(ctx)
	if err != nil {
		return err
	}
	defer a.close()
	if err := os.WriteFile(a.path("farm.toml"), []byte(readerOfCell), 0o600); err != nil {
		return err
	}
	if _, err := a.grange(ctx, "apply", "-f", a.path("farm.toml")); err != nil {
		return err
	}
	if _, err := a.as(ctx, "ann", "cell", "list"); err != nil {
		return err
	}
	user, token, err := s.tokenHolder(a)
	if err != nil {
		return err
	}
	end, err := s.flood(ctx, a.path("server.sock"), how)
	if err != nil {
		return err
	}
	defer end()
	list := func(cmd *exec.Cmd) *exec.Cmd {
		cmd.Args = append(cmd.Args, "--server", "unix://"+a.path("server.sock"), "cell", "list")
		return cmd
	}
	return s.served(ctx,
		caller{"root's `cell list`", func() *exec.Cmd { return list(exec.CommandContext(ctx, a.program)) }},
		caller{"another account's `cell list`", func() *exec.Cmd {
			cmd := list(user.command(ctx, filepath.Join(s.programs, "grange")))
			cmd.Env = append(cmd.Env, "GRANGE_TOKEN_FILE="+token)
			return cmd
		}})
}

// tokenHolder is an account that has ann's token for a server, and can reach its socket.
func (s *site) tokenHolder(a *standalone) (user *account, token string, err error) {
	if user, err = s.account(2); err != nil {
		return nil, "", err
	}
	token = filepath.Join(user.home, "token")
	secret, err := os.ReadFile(a.path("ann.secret"))
	return user, token, errors.Join(err, os.WriteFile(token, secret, 0o600), os.Chown(token, int(user.uid), -1),
		os.Chmod(a.dir, 0o711))
}

// flood starts the flooders, and returns when each has connected.
func (s *site) flood(ctx context.Context, socket, how string) (end func(), err error) {
	a, err := s.account(1)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	var running []*exec.Cmd
	end = func() {
		stop()
		for _, cmd := range running {
			cmd.Wait()
		}
	}
	for range flooders {
		cmd := a.act(ctx, "flood", socket, how)
		running = append(running, cmd)
		if _, err := begin(cmd); err != nil {
			end()
			return nil, fmt.Errorf("a flood: %w", err)
		}
	}
	return end, nil
}

// caller is somebody who is to be served beside a flood.
type caller struct {
	name string
	call func() *exec.Cmd
}

// served calls in turn. Each call must be answered, in time.
func (s *site) served(ctx context.Context, callers ...caller) error {
	for n := range answerCalls {
		start, err := took(exec.CommandContext(ctx, filepath.Join(s.programs, "grange"), "--version"))
		if err != nil {
			return err
		}
		for _, c := range callers {
			needed, err := took(c.call())
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case err != nil:
				return breach("call %d, %s: %v", n+1, c.name, err)
			case needed-start > answerTime:
				return breach("call %d, %s took %v; a program that calls nobody took %v", n+1, c.name, needed, start)
			}
		}
	}
	return nil
}

// took runs a command, and returns how long it took.
func took(cmd *exec.Cmd) (time.Duration, error) {
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return time.Since(began), err
}

// flood is a role: connect to a socket without end, and hang up, or keep half a request. It never waits for an answer.
func flood(args []string) error {
	socket, hold := args[0], args[1] == "hold"
	var held []int
	for n := 0; ; n++ {
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: socket}); err != nil && err != syscall.EINTR {
			return &net.OpError{Op: "dial", Net: "unix", Err: err}
		}
		if n == 0 {
			fmt.Println("connected")
		}
		if !hold {
			syscall.Close(fd)
			continue
		}
		syscall.Write(fd, []byte("GET /v1/host HTTP/1.1\r\n")) // to a connection that was closed, too
		if held = append(held, fd); len(held) > 500 {
			syscall.Close(held[0])
			held = held[1:]
		}
	}
}
