package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// What a guest writes for so long, and how often it may be given its job meanwhile: some times at once, and then once
// in ten seconds.
const (
	chatterTime = 8 * time.Second
	mostJobs    = 8
)

// chattyGuest: a guest that says again and again that it has come up is given its job, user data and all, a few times.
// The guest is this program, in the place of the VM's control socket, as the agent finds it at its next start.
func chattyGuest(ctx context.Context, s *site) (err error) {
	h, m, done, err := s.cloudVM(ctx, "m3", ": a script that is sent each time")
	if err != nil {
		return err
	}
	defer done()
	path := filepath.Join(h.Dir, "run/vm", m.Name, "org.grange.control")
	h.KillAgent()
	if err := os.Rename(path, path+".real"); err != nil {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	defer func() {
		h.KillAgent()
		listener.Close() // and with it the socket
		err = errors.Join(err, os.Rename(path+".real", path), h.StartAgent(context.WithoutCancel(ctx)))
	}()
	if err := h.StartAgent(ctx); err != nil {
		return err
	}
	listener.(*net.UnixListener).SetDeadline(time.Now().Add(time.Minute))
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	var jobs atomic.Int64
	go func() {
		lines := bufio.NewScanner(conn)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if bytes.Contains(lines.Bytes(), []byte(`"job":{`)) {
				jobs.Add(1)
			}
		}
	}()
	conn.SetWriteDeadline(time.Now().Add(chatterTime))
	for err == nil {
		_, err = conn.Write([]byte("\n{\"phase\":\"ready\"}\n"))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	switch n := jobs.Load(); {
	case n == 0:
		return errors.New("the guest was never given its job: the agent does not talk to us")
	case n > mostJobs:
		return breach("a guest was given its job %d times in %v", n, chatterTime)
	}
	return nil
}
