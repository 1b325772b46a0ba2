package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/e2e/serverlab"
)

// project is the only one.
const project = "people"

const farmFile = `
[cells.general]
broker = "grange"
default = true

[projects.people]

[shapes.huge]
cpus = 400
memory = "400G"
`

// site is a server and a host, with a network between them that can be cut.
type site struct {
	server           *serverlab.Server
	host             *lab.Lab
	link             *link
	atServer, atHost string // where metrics are
}

func startSite(ctx context.Context, dir, binary string) (*site, error) {
	s := &site{}
	var err error
	if s.server, err = serverlab.New(dir, binary); err != nil {
		return s, err
	}
	if s.link, err = newLink(strings.TrimPrefix(s.server.URL, "https://")); err != nil {
		return s, err
	}
	var err2 error
	s.atServer, err = serverlab.FreeAddress()
	s.atHost, err2 = serverlab.FreeAddress()
	if err := errors.Join(err, err2); err != nil {
		return s, err
	}
	// hosts know the server by what the link is called
	if err := s.server.Start(ctx, fmt.Sprintf("servers = [%q]\nsilent_after = \"1h\"\nmetrics_listen = %q\n",
		s.link.url(), s.atServer)); err != nil {
		return s, err
	}
	if err := s.server.Apply(ctx, farmFile); err != nil {
		return s, err
	}
	if s.host, err = lab.Start(ctx, lab.Options{Proxy: true, StateSize: "3G",
		Config: fmt.Sprintf("reserved_memory = \"256M\"\n[metrics]\nlisten = %q\n", s.atHost)}); err != nil {
		return s, err
	}
	return s, s.server.Join(ctx, s.host, "general", "node-1", s.link.url())
}

// fill leaves so much of the file system of the agent's state.
func (s *site) fill(left int64) (free func() error, err error) {
	f, err := os.Create(filepath.Join(s.host.Dir, "state", "filler"))
	free = func() error { return os.Remove(f.Name()) }
	if err != nil {
		return func() error { return nil }, err
	}
	var fs syscall.Statfs_t
	if err := syscall.Fstatfs(int(f.Fd()), &fs); err != nil {
		return free, errors.Join(err, f.Close())
	}
	return free, errors.Join(syscall.Fallocate(int(f.Fd()), 0, 0, int64(fs.Bavail)*fs.Bsize-left), f.Close())
}

func (s *site) close() error {
	var err error
	if s.host != nil {
		err = s.host.Close()
	}
	if s.link != nil {
		s.link.close()
	}
	if s.server != nil {
		s.server.Close()
	}
	return err
}

// link passes connections on to the server, until it is cut.
type link struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	down  bool
	conns map[net.Conn]bool
}

func newLink(to string) (*link, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	k := &link{listener: l, to: to, conns: map[net.Conn]bool{}}
	go k.accept()
	return k, nil
}

func (l *link) url() string { return "https://" + l.listener.Addr().String() }

func (l *link) accept() {
	for {
		c, err := l.listener.Accept()
		if err != nil {
			return
		}
		go l.serve(c)
	}
}

func (l *link) serve(c net.Conn) {
	defer c.Close()
	up, err := net.Dial("tcp", l.to)
	if err != nil {
		return
	}
	defer up.Close()
	if !l.hold(c, up) {
		return
	}
	defer l.drop(c, up)
	go func() {
		io.Copy(up, c)
		up.Close()
	}()
	io.Copy(c, up)
}

// hold keeps connections for cut. It reports whether they may go on.
func (l *link) hold(all ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range all {
		l.conns[c] = true
	}
	return !l.down
}

func (l *link) drop(all ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range all {
		delete(l.conns, c)
	}
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	for c := range l.conns {
		c.Close()
	}
}

func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

func (l *link) close() {
	l.listener.Close()
	l.cut()
}
