package shell

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/pty"
)

// Order is a command to keep.
type Order struct {
	Session Session  `json:"session"` // ID, pool, command and whether it may be left
	Argv    []string `json:"argv"`
	Size    Size     `json:"size"`
}

// keeper has a command in its terminal.
type keeper struct {
	sessions Sessions
	path     string // of the socket
	listener *net.UnixListener
	terminal *os.File
	command  *exec.Cmd
	over     chan struct{} // closed when the command has ended
	typed    chan []byte   // on its way to the terminal

	mu      sync.Mutex
	session Session
	client  *channel // that is attached; nil: nobody
	missed  []byte   // the end of the output that nobody saw
	ending  sync.Once
}

// mostTyped is how many pieces of what a client types wait for a terminal that takes nothing. More are dropped, as a
// terminal's own driver does: what follows, an end or a new size, must get through.
const mostTyped = 256

// mostMissed is how much output is kept for whoever attaches next.
const mostMissed = 64 << 10

// Keep starts the command and keeps it until it has ended; with ctx it is ended. Ready is called when clients may come.
func (s Sessions) Keep(ctx context.Context, o Order, ready func()) error {
	k := &keeper{sessions: s, session: o.Session, over: make(chan struct{}),
		typed: make(chan []byte, mostTyped)}
	k.session.Started, k.session.Process = time.Now(), os.Getpid()
	if err := k.listen(); err != nil {
		return err
	}
	defer k.leave()
	if err := k.start(o); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, k.end)()
	ready()
	go k.accept()
	go k.feed()
	shown := make(chan struct{})
	go func() { defer close(shown); k.show() }()
	err := k.command.Wait()
	select {
	case <-shown:
	case <-time.After(time.Second): // a process that is left has the terminal open
	}
	close(k.over)
	return k.tellEnd(statusOf(k.command.ProcessState, err))
}

// listen makes the socket. The directory may go meanwhile, with the last session of another process.
func (k *keeper) listen() (err error) {
	for range 3 {
		dir, failed := k.sessions.dir()
		if failed != nil {
			return failed
		}
		k.path = filepath.Join(dir, k.session.ID+socketSuffix)
		k.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: k.path, Net: "unix"})
		if err == nil {
			return os.Chmod(k.path, 0o600)
		}
	}
	return err
}

func (k *keeper) leave() {
	k.listener.Close() // removes the socket
	os.Remove(filepath.Dir(k.path))
}

func (k *keeper) start(o Order) error {
	ours, child, err := pty.Open()
	if err != nil {
		return fmt.Errorf("a terminal for the session: %w", err)
	}
	defer child.Close()
	if err := pty.Resize(ours, o.Size.Rows, o.Size.Cols); err != nil {
		ours.Close()
		return err
	}
	cmd := exec.Command(o.Argv[0], o.Argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = child, child, child
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return err
	}
	k.terminal, k.command = ours, cmd
	return nil
}

func (k *keeper) accept() {
	for {
		conn, err := k.listener.AcceptUnix()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			if peerIs(conn, k.sessions.User) {
				k.serve(newChannel(conn))
			}
		}()
	}
}

// peerIs reports whether a user is at the other end. The directory keeps others away already; this one does not depend
// on it. root could as well look into the process.
func peerIs(conn *net.UnixConn, user int) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	is := false
	raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		is = err == nil && int(cred.Uid) == user
	})
	return is
}

// serve answers one client.
func (k *keeper) serve(c *channel) {
	c.conn.SetReadDeadline(time.Now().Add(writeLimit))
	m, err := c.receive()
	if err != nil {
		return
	}
	c.conn.SetReadDeadline(time.Time{})
	k.mu.Lock()
	session := k.session
	session.Attached = k.client != nil
	k.mu.Unlock()
	if c.send(message{Session: &session}) != nil {
		return
	}
	switch {
	case m.End:
		k.end()
	case m.Attach != nil:
		k.attach(c, *m.Attach)
	}
}

// attach gives the terminal to a client, in the place of the one that has it, until it leaves or goes.
func (k *keeper) attach(c *channel, size Size) {
	k.mu.Lock()
	if k.client != nil {
		go k.client.part(message{Elsewhere: true})
	}
	k.client = c
	missed := k.missed
	k.missed = nil
	err := c.send(message{Data: missed})
	k.mu.Unlock()
	// of another size first: a program that fills the screen draws it anew only when that changes
	pty.Resize(k.terminal, size.Rows, max(size.Cols, 2)-1)
	pty.Resize(k.terminal, size.Rows, size.Cols)
	left := false
	for err == nil && !left {
		var m message
		if m, err = c.receive(); err != nil {
			break
		}
		switch {
		case len(m.Data) > 0:
			select {
			case k.typed <- m.Data:
			default:
			}
		case m.Size != nil:
			pty.Resize(k.terminal, m.Size.Rows, m.Size.Cols)
		case m.End:
			k.end()
		case m.Left:
			left = true
		}
	}
	k.mu.Lock()
	mine := k.client == c
	if mine {
		k.client = nil
	}
	stays := k.session.Detach
	k.mu.Unlock()
	if mine && !stays {
		k.end() // as any command whose terminal closes
	}
}

// feed writes what clients type. The terminal may take nothing for as long as it likes.
func (k *keeper) feed() {
	for {
		select {
		case data := <-k.typed:
			if _, err := k.terminal.Write(data); err != nil {
				return
			}
		case <-k.over:
			return
		}
	}
}

// show carries the command's output to whoever is attached.
func (k *keeper) show() {
	buf := make([]byte, 16<<10)
	for {
		n, err := k.terminal.Read(buf)
		if n > 0 {
			k.write(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

func (k *keeper) write(data []byte) {
	k.mu.Lock()
	c, stays := k.client, k.session.Detach
	k.mu.Unlock()
	if c != nil && k.shown(c, stays, data) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if c != nil && k.client == c {
		c.conn.Close() // attach notices
	}
	if k.client != nil && k.client != c {
		if k.client.send(message{Data: data}) == nil {
			return
		}
	}
	k.missed = append(k.missed, data...)
	if over := len(k.missed) - mostMissed; over > 0 {
		k.missed = k.missed[over:]
	}
}

// shown gives a client output. A command that may be left does not wait for a terminal that takes nothing: it may be at
// the other end of a network that is gone.
func (k *keeper) shown(c *channel, stays bool, data []byte) bool {
	if stays {
		return c.send(message{Data: data}) == nil
	}
	return c.sendPatiently(message{Data: data}) == nil
}

// steps are what ends a command that does not want to: as its terminal would when it closes, then ever harder. Two INT
// in a row have both grange exec and srun give up.
var steps = []struct {
	signal syscall.Signal
	wait   time.Duration
}{{unix.SIGHUP, 5 * time.Second}, {unix.SIGTERM, 5 * time.Second}, {unix.SIGINT, 500 * time.Millisecond},
	{unix.SIGINT, 10 * time.Second}, {unix.SIGKILL, 0}}

func (k *keeper) end() {
	k.ending.Do(func() {
		go func() {
			for _, s := range steps {
				k.command.Process.Signal(s.signal)
				select {
				case <-k.over:
					return
				case <-time.After(s.wait):
				}
			}
		}()
	})
}

// tellEnd tells who is attached; what nobody heard is kept.
func (k *keeper) tellEnd(status int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.client != nil {
		k.client.hurry() // its last output may be on its way
	}
	if k.client != nil && k.client.send(message{Ended: &status}) == nil {
		return nil
	}
	now := time.Now()
	k.session.Ended, k.session.Status = &now, status
	return k.sessions.keepEnd(filepath.Dir(k.path), ended{Session: k.session, Last: k.missed})
}

// statusOf is how a shell reports the end of a command.
func statusOf(state *os.ProcessState, err error) int {
	if state == nil || err != nil && !errors.As(err, new(*exec.ExitError)) {
		return 1
	}
	if w, ok := state.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return state.ExitCode()
}
