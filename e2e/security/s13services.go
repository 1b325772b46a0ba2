package main

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/lab"
)

const (
	serviceAskers      = 8 // processes that ask without end
	serviceTime        = 5 * time.Second
	mostServiceConnect = 10 // connections to a service in that time
)

// floodedService has an account ask without end which services answer, and counts what comes to one of them.
func floodedService(ctx context.Context, s *site) error {
	service, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer service.Close()
	var came atomic.Int64
	go func() {
		for {
			conn, err := service.Accept()
			if err != nil {
				return
			}
			came.Add(1)
			conn.Close()
		}
	}()
	l, err := s.start(ctx, lab.Options{NoImage: true, Config: fmt.Sprintf("[services.proxy]\nconnect = %q\nport = 8081\n",
		service.Addr())})
	if err != nil {
		return err
	}
	a, err := s.account(7)
	if err != nil {
		return err
	}
	asking, stop := context.WithCancel(ctx)
	defer stop()
	var cmds []*exec.Cmd
	for range serviceAskers {
		cmd := a.act(asking, "ask-services", l.Socket)
		defer cmd.Wait()
		defer stop()
		if line, err := begin(cmd); err != nil {
			return fmt.Errorf("nothing is asked: %w: %s", err, line)
		}
		cmds = append(cmds, cmd)
	}
	before := came.Load()
	time.Sleep(serviceTime)
	if n := came.Load() - before; n > mostServiceConnect {
		return breach("%d processes of an account had the host connect to a service %d times in %v", len(cmds), n,
			serviceTime)
	}
	return nil
}

// askServices is a role: ask which services answer, without end.
func askServices(args []string) error {
	client := api.NewClient(args[0])
	for n := 0; ; n++ {
		if _, err := client.Services(context.Background()); err != nil {
			return err
		}
		if n == 0 {
			fmt.Println("asked")
		}
	}
}
