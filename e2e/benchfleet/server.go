package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pki"
	"github.com/grange-project/grange/internal/server"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/uplink"
)

// serverProcess is a `grange server` on SQLite in a directory of its own.
type serverProcess struct {
	dir, binary, url, socket string
	cmd                      *exec.Cmd
	log                      *os.File
	highest                  float64 // resident, over all of its lives
}

func newServer(ctx context.Context, dir, binary string) (*serverProcess, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	l.Close()
	s := &serverProcess{dir: dir, binary: binary, url: "https://" + address, socket: filepath.Join(dir, "server.sock")}
	if s.binary == "" {
		s.binary = filepath.Join(dir, "grange")
		build := exec.CommandContext(ctx, "go", "build", "-o", s.binary, "github.com/grange-project/grange/cmd/grange")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return nil, fmt.Errorf("building grange: %w", err)
		}
	}
	text := fmt.Sprintf("store = %q\nsocket = %q\nlisten = %q\nurl = %q\n", s.database(), s.socket, address, s.url)
	return s, os.WriteFile(filepath.Join(dir, "server.toml"), []byte(text), 0o600)
}

func (s *serverProcess) database() string { return filepath.Join(s.dir, "farm.db") }

// enrol writes hosts and their identities down, as if each had joined: that is not what is measured.
func (s *serverProcess) enrol(ctx context.Context, hosts int) (*os.Root, error) {
	db, err := store.Open(ctx, s.database())
	if err != nil {
		return nil, err
	}
	defer db.Close()
	cas, err := server.New(server.Options{Store: db, Log: slog.New(slog.DiscardHandler), URL: s.url,
		CAKeyFile: filepath.Join(s.dir, "ca.key")}).Links.Authorities(ctx)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(s.dir, "identities")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	rows, err := s.issue(dir, cas.Present, hosts)
	if err != nil {
		return nil, err
	}
	if _, err := db.Update(ctx, func(t *store.Tx) error {
		return t.PutCell(farm.Cell{Name: "bench",
			Default: true}.WithDefaults())
	}); err != nil {
		return nil, err
	}
	for some := range slices.Chunk(rows, 1000) {
		_, err := db.Update(ctx, func(t *store.Tx) error {
			for _, h := range some {
				if err := t.InsertHost(h); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return os.OpenRoot(dir)
}

// issue makes identities, on all cores.
func (s *serverProcess) issue(dir string, ca *pki.CA, hosts int) ([]farm.Host, error) {
	rows, errs := make([]farm.Host, hosts), make([]error, hosts)
	var all sync.WaitGroup
	for first := range runtime.NumCPU() {
		all.Go(func() {
			for n := first; n < hosts; n += runtime.NumCPU() {
				rows[n], errs[n] = s.identity(dir, ca, n)
			}
		})
	}
	all.Wait()
	return rows, errors.Join(errs...)
}

func (s *serverProcess) identity(dir string, ca *pki.CA, n int) (farm.Host, error) {
	key, err := pki.NewKey()
	if err != nil {
		return farm.Host{}, err
	}
	csr, err := pki.NewRequest(key)
	if err != nil {
		return farm.Host{}, err
	}
	h := farm.Host{ID: api.NewID(), Name: hostName(n), Cell: "bench", MachineID: hostName(n),
		Enrolled: time.Now().UTC()}
	issued, err := ca.IssueHost(h.ID, csr, time.Now())
	if err != nil {
		return farm.Host{}, err
	}
	h.Serial, h.Expires = issued.Serial, issued.Expires
	text, err := json.Marshal(uplink.Identity{Host: h.ID, Name: h.Name, Servers: []string{s.url}, CA: string(ca.PEM()),
		Key: string(key), Certificate: string(issued.PEM)})
	if err != nil {
		return farm.Host{}, err
	}
	return h, os.WriteFile(filepath.Join(dir, identityFile(n)), text, 0o600)
}

// start starts the server, and returns when it answers on its socket.
func (s *serverProcess) start(ctx context.Context) error {
	var err error
	if s.log, err = os.OpenFile(filepath.Join(s.dir, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY,
		0o600); err != nil {
		return err
	}
	s.cmd = exec.CommandContext(ctx, s.binary, "server", "--config", filepath.Join(s.dir, "server.toml"))
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		return err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(30 * time.Second); ; {
		if c, err := net.Dial("unix", s.socket); err == nil {
			return c.Close()
		}
		select {
		case <-tick.C:
		case <-late:
			text, _ := os.ReadFile(s.log.Name())
			return fmt.Errorf("the server does not answer: %s", text)
		}
	}
}

// stop ends the server in order.
func (s *serverProcess) stop() error {
	s.peak()
	defer s.log.Close()
	if err := s.cmd.Process.Signal(unix.SIGTERM); err != nil {
		return err
	}
	return s.cmd.Wait()
}

func (s *serverProcess) kill() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
	s.log.Close()
}

// order sends all hosts an order.
func (s *serverProcess) order(ctx context.Context, v fleet.Settings) error {
	c, err := fleet.NewClient(fleet.Config{Server: "unix://" + s.socket})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Apply(ctx, fleet.ApplyRequest{Farm: fleet.Farm{Settings: &v}})
	return err
}

// watch is the CPU time and the memory that the server takes.
func (s *serverProcess) watch(ctx context.Context, d time.Duration) (cores, megabytes float64, err error) {
	before, err := s.cpuTime()
	if err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	select {
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	case <-time.After(d):
	}
	after, err := s.cpuTime()
	if err != nil {
		return 0, 0, err
	}
	return (after - before).Seconds() / time.Since(begun).Seconds(), s.status("VmRSS"), nil
}

// cpuTime is what the process used so far.
func (s *serverProcess) cpuTime() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/PID/stat is %q", text)
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond, nil // USER_HZ is 100 on every Linux that is left
}

// status is a line of /proc/PID/status, in 10^6 bytes.
func (s *serverProcess) status(name string) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			kib, _ := strconv.ParseFloat(strings.Fields(value)[0], 64)
			return kib * 1024 / 1e6
		}
	}
	return 0
}

// peak is the most that any life of the server took.
func (s *serverProcess) peak() float64 {
	s.highest = max(s.highest, s.status("VmHWM"))
	return s.highest
}
