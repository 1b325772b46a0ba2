// Package serverlab has a `grange server` process of its own, for programs that try it from outside.
package serverlab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/deathsig"
)

// StartTime bounds how long servers and what belongs to them take to come up.
const StartTime = 5 * time.Minute

// mostIdle is how many connections Client keeps.
const mostIdle = 32

// Server is the process, with all its files in a directory.
type Server struct {
	Dir, Binary string
	URL         string
	PID         int
	Roots       *x509.CertPool
	Client      *http.Client // that knows the server's certificate
	SPKI        string       // of that, by which a browser knows it

	address string
	ended   []func()
}

// New chooses where the server will be.
func New(dir, binary string) (*Server, error) {
	address, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	binary, err = filepath.Abs(binary)
	return &Server{Dir: dir, Binary: binary, URL: "https://" + address, address: address}, err
}

// FreeAddress is one of this machine that nobody listens on.
func FreeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// Start starts it, with these lines in its configuration, and waits until it answers.
func (s *Server) Start(ctx context.Context, config string) error {
	text := fmt.Sprintf("store = %q\nsocket = %q\nlisten = %q\nurl = %q\n%s", s.Store(), s.Path("server.sock"),
		s.address, s.URL, config)
	if err := os.WriteFile(s.Path("server.toml"), []byte(text), 0o600); err != nil {
		return err
	}
	var err error
	if s.PID, err = s.Background("server.log", "server", "--config", s.Path("server.toml")); err != nil {
		return err
	}
	answers := func() error { _, err := s.Grange(ctx, "server", "status"); return err }
	if err := Await(ctx, StartTime, answers); err != nil {
		return fmt.Errorf("the server does not answer: %w\n%s", err, s.Log("server.log"))
	}
	return s.trust()
}

// trust learns the server's certificate.
func (s *Server) trust() error {
	conn, err := tls.Dial("tcp", s.address, &tls.Config{InsecureSkipVerify: true}) // on this machine's loopback
	if err != nil {
		return err
	}
	defer conn.Close()
	s.Roots = x509.NewCertPool()
	chain, text := conn.ConnectionState().PeerCertificates, []byte(nil)
	for _, c := range chain {
		s.Roots.AddCert(c)
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	sum := sha256.Sum256(chain[0].RawSubjectPublicKeyInfo)
	s.SPKI = base64.StdEncoding.EncodeToString(sum[:])
	s.Client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		MaxIdleConnsPerHost: mostIdle, TLSClientConfig: &tls.Config{RootCAs: s.Roots}}}
	return os.WriteFile(s.CAFile(), text, 0o600)
}

// Apply writes a farm file and has the server take it over.
func (s *Server) Apply(ctx context.Context, farm string) error {
	if err := os.WriteFile(s.Path("farm.toml"), []byte(farm), 0o600); err != nil {
		return err
	}
	_, err := s.Grange(ctx, "apply", "-f", s.Path("farm.toml"))
	return err
}

// Path is that of a file in the server's directory, and Store of its database.
func (s *Server) Path(name string) string { return filepath.Join(s.Dir, name) }
func (s *Server) Store() string           { return s.Path("farm.db") }

// CAFile has the certificates by which clients know the server.
func (s *Server) CAFile() string { return s.Path("server.pem") }

// Log is what a process has written.
func (s *Server) Log(name string) string {
	text, _ := os.ReadFile(s.Path(name))
	return string(text)
}

// Grange runs a command as the server's administrator, and returns what it prints.
func (s *Server) Grange(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.Binary, args...)
	cmd.Env = append(os.Environ(), "GRANGE_SERVER=unix://"+s.Path("server.sock"))
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("grange %s: %w: %s", strings.Join(args, " "), err, &problem)
	}
	return string(out), nil
}

// Background starts a command that goes on until Close.
func (s *Server) Background(log string, args ...string) (pid int, err error) {
	file, err := os.Create(s.Path(log))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	cmd := exec.Command(s.Binary, args...)
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

func (s *Server) Close() {
	for _, end := range s.ended {
		end()
	}
}

// Await asks until there is no error any more.
func Await(ctx context.Context, limit time.Duration, ask func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := ask()
		if err == nil || time.Now().After(deadline) || ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}
