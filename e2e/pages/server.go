package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/deathsig"
)

// server is a `grange server` process with a fleet in its database, and some hosts that answer.
type server struct {
	dir, binary, url, token string
	pid                     int
	ended                   []func()
	client                  *http.Client
	spki                    string // of its certificate, by which the browser knows it
}

// answering is how many of the hosts are there, as `grange sim` has them: VMs run on these alone.
const answering = 3

// startTime bounds how long servers and hosts take to come up.
const startTime = 5 * time.Minute

const farmFile = `
[cells.general]
broker = "grange"
default = true

[projects.people]
quota = { vms = 40, cpus = 160, memory = "640G", scratch = "2T" }

[users.ann]

[[grants]]
user = "ann"
role = "member"
project = "people"

[[grants]]
user = "ann"
role = "operator"

[shapes.tiny]
cpus = 1
memory = "192M"

[shapes.large]
cpus = 16
memory = "64G"
scratch = "100G"
page_size = "1G,2M,0"

[networks.lan]
bridge = "br0"
addresses = ["10.77.1.1-10.77.1.250/16"]
`

func startServer(ctx context.Context, dir, binary string, hosts int) (s *server, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	l.Close()
	if binary, err = filepath.Abs(binary); err != nil {
		return nil, err
	}
	s = &server{dir: dir, binary: binary, url: "https://" + address}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	// hosts that are rows alone are not heard of again
	text := fmt.Sprintf("store = %q\nsocket = %q\nlisten = %q\nurl = %q\nsilent_after = \"1h\"\n", s.path("farm.db"),
		s.path("server.sock"), address, s.url)
	if err := errors.Join(os.WriteFile(s.path("server.toml"), []byte(text), 0o600),
		os.WriteFile(s.path("farm.toml"), []byte(farmFile), 0o600)); err != nil {
		return s, err
	}
	if err := fill(ctx, s.path("farm.db"), hosts-answering); err != nil {
		return s, fmt.Errorf("writing the fleet: %w", err)
	}
	if s.pid, err = s.background("server.log", "server", "--config", s.path("server.toml")); err != nil {
		return s, err
	}
	answers := func() error { _, err := s.grange(ctx, "server", "status"); return err }
	if err := await(ctx, startTime, answers); err != nil {
		return s, fmt.Errorf("the server does not answer: %w\n%s", err, s.log("server.log"))
	}
	if _, err := s.grange(ctx, "apply", "-f", s.path("farm.toml")); err != nil {
		return s, err
	}
	if s.token, err = s.grange(ctx, "token", "create", "--user", "ann"); err != nil {
		return s, err
	}
	s.token = strings.TrimSpace(s.token)
	return s, errors.Join(s.trust(address), s.simulate(ctx))
}

// trust learns the server's certificate, as the browser has to.
func (s *server) trust(address string) error {
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}) // on this machine's loopback
	if err != nil {
		return err
	}
	defer conn.Close()
	roots := x509.NewCertPool()
	chain := conn.ConnectionState().PeerCertificates
	for _, c := range chain {
		roots.AddCert(c)
	}
	sum := sha256.Sum256(chain[0].RawSubjectPublicKeyInfo)
	s.spki = base64.StdEncoding.EncodeToString(sum[:])
	s.client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}}}
	return nil
}

// simulate has some hosts answer.
func (s *server) simulate(ctx context.Context) error {
	token, err := s.grange(ctx, "host", "token", "create", "--cell", "general", "--count", strconv.Itoa(answering))
	if err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(s.path("join"), []byte(token), 0o600),
		os.MkdirAll(s.path("sim"), 0o700)); err != nil {
		return err
	}
	if _, err := s.background("sim.log", "sim", "--hosts", strconv.Itoa(answering), "--prefix", "live-", "--dir",
		s.path("sim"), "--token-file", s.path("join"), "--server", s.url, "--delay", "1s"); err != nil {
		return err
	}
	return await(ctx, startTime, func() error {
		out, err := s.grange(ctx, "host", "show", fmt.Sprintf("live-%05d", answering))
		if err == nil && !strings.Contains(out, "open") {
			err = fmt.Errorf("the hosts do not come: %s\n%s", out, s.log("sim.log"))
		}
		return err
	})
}

func (s *server) path(name string) string { return filepath.Join(s.dir, name) }

func (s *server) log(name string) string {
	text, _ := os.ReadFile(s.path(name))
	return string(text)
}

// grange runs a command as the server's administrator, and returns what it prints.
func (s *server) grange(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.binary, args...)
	cmd.Env = append(os.Environ(), "GRANGE_SERVER=unix://"+s.path("server.sock"))
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("grange %s: %w: %s", strings.Join(args, " "), err, &problem)
	}
	return string(out), nil
}

func (s *server) background(log string, args ...string) (pid int, err error) {
	file, err := os.Create(s.path(log))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	cmd := exec.Command(s.binary, args...)
	cmd.Stdout, cmd.Stderr = file, file
	if err := deathsig.Start(cmd, syscall.SIGKILL); err != nil {
		return 0, err
	}
	s.ended = append(s.ended, func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd.Process.Pid, nil
}

func (s *server) close() {
	for _, end := range s.ended {
		end()
	}
}

// cpuTime is what the server used so far.
func (s *server) cpuTime() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.pid))
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

// await asks until there is no error any more.
func await(ctx context.Context, limit time.Duration, ask func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := ask()
		if err == nil || time.Now().After(deadline) || ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}
