package daemon

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/fleet"
	"github.com/grange-project/grange/internal/store/storetest/postgres"
)

// serverLog is a log that tells when something was written to it.
type serverLog struct {
	mu    sync.Mutex
	text  string
	grown chan struct{} // closes at the next line
}

func (s *serverLog) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text += string(p)
	if s.grown != nil {
		close(s.grown)
		s.grown = nil
	}
	return len(p), nil
}

// has reports whether the log has a text, and gives what closes when it has grown.
func (s *serverLog) has(text string) (bool, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grown == nil {
		s.grown = make(chan struct{})
	}
	return strings.Contains(s.text, text), s.grown
}

// await waits for a text, or until the server has ended.
func (r serverRun) await(t *testing.T, text string) {
	t.Helper()
	for {
		there, grown := r.log.has(text)
		if there {
			return
		}
		select {
		case <-grown:
		case <-r.ended:
			t.Fatalf("the server has ended: %v\n%s", r.stop(), r.log.text)
		case <-t.Context().Done():
			t.Fatalf("the server's log has no %q", text)
		}
	}
}

// serverRun is a server in this process.
type serverRun struct {
	socket string
	log    *serverLog
	ended  chan struct{} // closes when it has ended
	stop   func() error
}

func startServer(t *testing.T, args ...string) serverRun {
	t.Helper()
	r := serverRun{socket: filepath.Join(t.TempDir(), "s"), log: &serverLog{}, ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	a := &app.App{Out: io.Discard, Err: r.log}
	root := a.Tree(app.Group{Title: "Fleet", Commands: ServerCommands(a)})
	root.SetArgs(append([]string{"server", "--socket", r.socket}, args...))
	var err error
	go func() {
		defer close(r.ended)
		err = root.ExecuteContext(ctx)
	}()
	r.stop = func() error {
		cancel()
		<-r.ended
		return err
	}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	r.await(t, "server serves")
	return r
}

// ask runs a command of the program.
func ask(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	a := &app.App{Out: &out, Err: io.Discard}
	root := a.Tree(app.Group{Title: "Fleet", Commands: slices.Concat(ServerCommands(a), fleet.Commands(a))})
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func must(t *testing.T, want string, args ...string) {
	t.Helper()
	if out, err := ask(t, args...); err != nil || !strings.Contains(out, want) {
		t.Errorf("grange %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestServerData(t *testing.T) {
	dir := t.TempDir()
	config, db, backup := filepath.Join(dir, "server.toml"), filepath.Join(dir, "farm.db"), filepath.Join(dir,
		"backup.db")
	if err := os.WriteFile(config, []byte(
		"store = \""+db+"\"\nlisten = \"127.0.0.1:0\"\nurl = \"https://localhost:7480\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t, "server", "check", "--config", config); app.CodeOf(err) != "no-store" {
		t.Errorf("a database that is not there: %v", err)
	}
	r := startServer(t, "--config", config)
	must(t, "hosts   none", "server", "status", "--server", r.socket)
	must(t, "is sound", "server", "check", "--config", config)
	out, err := ask(t, "server", "check", "--json", "--config", config)
	if found := map[string]any{}; err != nil || json.Unmarshal([]byte(out), &found) != nil || found["steps"] == nil ||
		found["todo"] != float64(0) {
		t.Errorf("as JSON: %v\n%s", err, out)
	}
	must(t, "copied to "+backup, "server", "backup", "--config", config, backup)
	if _, err := ask(t, "server", "backup", "--config", config, backup); app.CodeOf(err) != "store-not-empty" {
		t.Errorf("a backup over another: %v", err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t, "server", "restore", "--config", config, backup); app.CodeOf(err) != "store-not-empty" {
		t.Errorf("a restore over a farm: %v", err)
	}
	restored := filepath.Join(dir, "restored.db")
	must(t, "copied to "+restored, "server", "restore", "--store", restored, backup)
	r = startServer(t, "--config", config, "--store", restored)
	must(t, "revision 10485", "server", "status", "--server", r.socket)
}

func TestServerConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "server.toml")
	for text, want := range map[string]string{
		"nonsense = 1":                     "nonsense",
		`people_ca = "/nonexistent"`:       "/nonexistent",
		`host_ca = "` + file + `"`:         "server.toml",
		"store = \"/nonexistent/farm.db\"": "/nonexistent/farm.db",
		"certificate = \"/nonexistent\"\nkey = \"/nonexistent\"\nca = \"/nonexistent\"": "/nonexistent",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ask(t, "server", "check", "--config", file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := ask(t, "server", "--config", file+".none"); app.CodeOf(err) != "bad-config" {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestServerCertificate: a HUP gives the next connection a fresh certificate.
func TestServerCertificate(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	r := startServer(t, "--config", os.DevNull, "--store", filepath.Join(t.TempDir(), "farm.db"), "--listen", address)
	serial := func() string {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		defer transport.CloseIdleConnections()
		answer, err := (&http.Client{Transport: transport}).Get("https://" + address + "/v1/version")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Fatal(answer.Status)
		}
		return answer.TLS.PeerCertificates[0].SerialNumber.String()
	}
	before := serial()
	if serial() != before {
		t.Error("each connection has a certificate of its own")
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); serial() == before; {
		if time.Now().After(deadline) {
			t.Fatalf("the certificate is the old one:\n%s", r.log.text)
		}
	}
}

// TestTwoServers: both answer, one of them leads, and the other one leads after it.
func TestTwoServers(t *testing.T) {
	pg, err := postgres.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := pg.Create(t.Context(), "farm", ""); err != nil {
		t.Fatal(err)
	}
	args := []string{"--config", os.DevNull, "--store", pg.URL("farm"), "--listen", "127.0.0.1:0"}
	file := filepath.Join(t.TempDir(), "server.toml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "url = \"https://localhost:7480\"\nca_key_file = %q\n",
		filepath.Join(t.TempDir(), "ca.key")), 0o600); err != nil {
		t.Fatal(err)
	}
	args[1] = file
	one, two := startServer(t, args...), startServer(t, args...)
	cells := filepath.Join(t.TempDir(), "cells.toml")
	if err := os.WriteFile(cells, []byte("[cells.main]\ndefault = true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, "", "apply", "-f", cells, "--server", one.socket)
	must(t, "main", "cell", "list", "--server", two.socket)
	one.await(t, "this server leads")
	if err := one.stop(); err != nil {
		t.Error(err)
	}
	two.await(t, "this server leads")
	must(t, "main", "cell", "list", "--server", two.socket)
}
