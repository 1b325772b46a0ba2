// Package postgres runs a PostgreSQL of a test's own, from Debian's package: in a temporary directory, as a user that
// is not root, on a unix socket alone. It is for tests of the store and of whole farms; nothing else imports it.
package postgres

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/grange-project/grange/internal/deathsig"
	"github.com/grange-project/grange/internal/names"
)

// startTimeout bounds initdb, and each start.
const startTimeout = time.Minute

// Server is a running PostgreSQL, or one that was killed and can be started again.
type Server struct {
	dir      string // data, and the socket
	programs string
	account  *syscall.Credential // nil: our own

	cmd   *exec.Cmd
	ended chan struct{} // closes when cmd has ended
}

// Start makes a new, empty PostgreSQL and starts it. Nothing of it is flushed to the disk, for speed: it survives Kill,
// and no power cut.
func Start(ctx context.Context) (*Server, error) {
	programs, err := find()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "grange-postgres-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, programs: programs}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := s.Restart(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// find is the directory of the programs of the newest release there is.
func find() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", errors.New("there is no PostgreSQL here: scripts/install-packages test")
	}
	release := func(path string) int {
		n, _ := strconv.Atoi(strings.Split(path, "/")[4])
		return n
	}
	newest := slices.MaxFunc(found, func(a, b string) int { return release(a) - release(b) })
	return filepath.Dir(newest), nil
}

// prepare makes the files. PostgreSQL refuses to run as root, so that root runs it as the user of Debian's package.
func (s *Server) prepare(ctx context.Context) error {
	if os.Geteuid() == 0 {
		if err := s.handOver("postgres"); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	// Names must be in the order of their bytes whatever the database's own order is: this one sorts as people do.
	out, err := s.command(ctx, "initdb", "-D", s.data(), "-A", "trust", "-U", "grange", "-E", "UTF8",
		"--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US", "--no-sync").CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

func (s *Server) handOver(name string) error {
	account, err := names.Host().Named(context.Background(), name)
	if err != nil {
		return err
	}
	s.account = &syscall.Credential{Uid: account.UID, Gid: account.GID}
	return os.Chown(s.dir, int(account.UID), int(account.GID))
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.programs, program), args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.account}
	return cmd
}

// Restart starts it again after Kill.
func (s *Server) Restart(ctx context.Context) error {
	cmd := s.command(context.WithoutCancel(ctx), "postgres", "-D", s.data(), "-k", s.dir, "-c", "listen_addresses=",
		"-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", "max_connections=100", "-c", "lc_messages=C")
	text, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := deathsig.Start(cmd, syscall.SIGQUIT); err != nil {
		return err
	}
	log := newLog(text)
	s.cmd, s.ended = cmd, make(chan struct{})
	go func() {
		<-log.done
		cmd.Wait()
		close(s.ended)
	}()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case <-log.ready:
		return nil
	case <-s.ended:
		return fmt.Errorf("postgres ended: %s", log.tail())
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("postgres did not start: %s", log.tail()), s.Kill())
	}
}

// Kill ends it as a crash does: nothing is said to anybody, nothing is tidied.
func (s *Server) Kill() error {
	// The postmaster's children notice its death and end by themselves.
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-s.ended
	return nil
}

// Stop ends it and removes its files.
func (s *Server) Stop() error {
	err := s.cmd.Process.Signal(syscall.SIGINT) // a fast shutdown: sessions are ended
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-s.ended
	return errors.Join(err, os.RemoveAll(s.dir))
}

// URL is that of one of its databases, as grange server --store takes it.
func (s *Server) URL(database string) string {
	return "postgres://grange@/" + database + "?host=" + s.dir
}

// Create makes an empty database. Options are SQL, as "ENCODING 'LATIN1'"; "": as the farm wants it.
func (s *Server) Create(ctx context.Context, database, options string) error {
	return s.Do(ctx, "postgres", "CREATE DATABASE "+pgx.Identifier{database}.Sanitize()+" TEMPLATE template0 "+options)
}

// Do runs one statement in a database, as an administrator would by hand.
func (s *Server) Do(ctx context.Context, database, statement string) error {
	conn, err := pgx.Connect(ctx, s.URL(database))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

// log is what the postmaster says: that it is ready, and why it is not.
type log struct {
	mu          sync.Mutex
	lines       []string
	ready, done chan struct{}
}

func newLog(text io.Reader) *log {
	l := &log{ready: make(chan struct{}), done: make(chan struct{})}
	go l.read(text)
	return l
}

func (l *log) read(text io.Reader) {
	defer close(l.done)
	ready := false
	for lines := bufio.NewScanner(text); lines.Scan(); {
		l.mu.Lock()
		l.lines = append(l.lines[max(0, len(l.lines)-19):], lines.Text())
		l.mu.Unlock()
		if !ready && strings.Contains(lines.Text(), "database system is ready to accept connections") {
			ready = true
			close(l.ready)
		}
	}
}

func (l *log) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}
