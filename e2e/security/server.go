package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
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

// standalone is a server by itself, on the loopback. Its hosts are `grange sim`'s: their certificates and requests are
// those of real ones.
type standalone struct {
	dir, program, address string
	pid                   int             // of the server
	host                  tls.Certificate // of one host
	roots                 *x509.CertPool
	ended                 []func()
}

const standaloneFarm = `
[cells.general]
broker = "grange"
default = true

[projects.people]

[users.ann]

[shapes.tiny]
cpus = 1
memory = "192M"
`

// standalone starts a server and a host of it; config is added to the server's configuration. The attack closes it.
func (s *site) standalone(ctx context.Context, config ...string) (a *standalone, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	a = &standalone{program: filepath.Join(s.programs, "grange"), address: l.Addr().String()}
	l.Close()
	if a.dir, err = os.MkdirTemp(s.dir, "server"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			a.close()
			a = nil
		}
	}()
	text := fmt.Sprintf("store = %q\nsocket = %q\nlisten = %q\nurl = %q\n", a.path("farm.db"), a.path("server.sock"),
		a.address, a.url()) + strings.Join(config, "")
	if err := errors.Join(os.WriteFile(a.path("server.toml"), []byte(text), 0o600),
		os.WriteFile(a.path("farm.toml"), []byte(standaloneFarm), 0o600)); err != nil {
		return a, err
	}
	if a.pid, err = a.background("server.log", "server", "--config", a.path("server.toml")); err != nil {
		return a, err
	}
	if err := await(ctx, time.Minute,
		func() error { _, err := a.grange(ctx, "host", "list"); return err }); err != nil {
		return a, fmt.Errorf("the server does not answer: %w\n%s", err, a.log("server.log"))
	}
	if _, err := a.grange(ctx, "apply", "-f", a.path("farm.toml")); err != nil {
		return a, err
	}
	if err := a.join(ctx, "first"); err != nil {
		return a, err
	}
	return a, a.identity("first")
}

func (a *standalone) path(name string) string { return filepath.Join(a.dir, name) }
func (a *standalone) url() string             { return "https://" + a.address }

func (a *standalone) log(name string) string {
	text, _ := os.ReadFile(a.path(name))
	return string(text)
}

// grange runs a command as the server's administrator, and returns what it prints.
func (a *standalone) grange(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, a.program, args...)
	cmd.Env = append(os.Environ(), "GRANGE_SERVER=unix://"+a.path("server.sock"))
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("grange %s: %w: %s", strings.Join(args, " "), err, &problem)
	}
	return string(out), nil
}

// background starts a command that runs until the attack is over.
func (a *standalone) background(log string, args ...string) (pid int, err error) {
	file, err := os.Create(a.path(log))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	cmd := exec.Command(a.program, args...)
	cmd.Stdout, cmd.Stderr = file, file
	if err := deathsig.Start(cmd, syscall.SIGKILL); err != nil {
		return 0, err
	}
	a.ended = append(a.ended, func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd.Process.Pid, nil
}

func (a *standalone) close() {
	for _, end := range a.ended {
		end()
	}
}

// join has one more host join with a new token.
func (a *standalone) join(ctx context.Context, name string) error {
	token, err := a.grange(ctx, "host", "token", "create", "--cell", "general")
	if err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(a.path(name+".token"), []byte(token), 0o600),
		os.MkdirAll(a.path(name), 0o700)); err != nil {
		return err
	}
	if _, err := a.background(name+".log", "sim", "--hosts", "1", "--prefix", name+"-", "--dir", a.path(name),
		"--token-file", a.path(name+".token"), "--server", a.url()); err != nil {
		return err
	}
	err = await(ctx, 30*time.Second, func() error {
		if strings.Contains(a.log(name+".log"), "joined") {
			return nil
		}
		return errors.New("not yet")
	})
	if err != nil {
		return fmt.Errorf("host %s does not join: %s", name, a.log(name+".log"))
	}
	return nil
}

// identity reads the certificate of a host that joined.
func (a *standalone) identity(name string) error {
	files, err := filepath.Glob(a.path(name) + "/*")
	if err != nil || len(files) != 1 {
		return fmt.Errorf("identities of %s: %v, %v", name, files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return err
	}
	var i struct{ CA, Key, Certificate string }
	if err := json.Unmarshal(text, &i); err != nil {
		return err
	}
	a.roots = x509.NewCertPool()
	a.roots.AppendCertsFromPEM([]byte(i.CA))
	a.host, err = tls.X509KeyPair([]byte(i.Certificate), []byte(i.Key))
	return err
}

// client is one that shows this certificate, or none.
func (a *standalone) client(shown ...tls.Certificate) *http.Client {
	return &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64,
		TLSClientConfig: &tls.Config{RootCAs: a.roots, Certificates: shown}}}
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
