package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/grange-project/grange/internal/farm"
)

// Terminal is where a user sits.
type Terminal struct {
	In, Out *os.File
	Escape  byte      // 0: none
	Notes   io.Writer // for people
}

// Outcome is how an attached session was left.
type Outcome struct {
	Status   int  // of the command, unless
	Detached bool // it goes on
}

// Check refuses to be no terminal.
func (t Terminal) Check() error {
	if term.IsTerminal(int(t.In.Fd())) && term.IsTerminal(int(t.Out.Fd())) {
		return nil
	}
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeUsage, Message: "grange shell needs a terminal",
		Hint: "in scripts use `grange exec --pool POOL -- COMMAND`"}
}

// Size is that of the terminal.
func (t Terminal) Size() Size {
	cols, rows, err := term.GetSize(int(t.Out.Fd()))
	if err != nil {
		return Size{Rows: 24, Cols: 80}
	}
	return Size{Rows: uint16(rows), Cols: uint16(cols)}
}

// Attach gives the terminal to a session of the user, by the start of its ID or "" for the only one, until the session
// ends or is left. Of one that has ended meanwhile the end is shown, once.
func (s Sessions) Attach(ctx context.Context, ref string, t Terminal) (Outcome, error) {
	id, over, err := s.find(ref)
	if err != nil {
		return Outcome{}, err
	}
	if over {
		e, err := s.takeEnd(id)
		if err != nil {
			return Outcome{}, err
		}
		t.Out.Write(e.Last)
		fmt.Fprintf(t.Notes, "grange: session %s ended at %s with status %d\n", id,
			e.Session.Ended.Local().Format("2006-01-02 15:04:05"), e.Session.Status)
		return Outcome{Status: e.Session.Status}, nil
	}
	path, ok := s.files(socketSuffix)[id]
	if !ok {
		return Outcome{}, noSession("session " + id + " is not there any more")
	}
	c, err := dial(ctx, path)
	if err != nil {
		return Outcome{}, noSession("session " + id + " is not there any more")
	}
	defer c.conn.Close()
	size := t.Size()
	session, err := c.open(message{Attach: &size})
	if err != nil {
		return Outcome{}, fmt.Errorf("session %s: %w", id, err)
	}
	return t.join(ctx, c, session, func() bool {
		_, err := ask(path, message{})
		return err == nil
	})
}

// End ends a session, as when its terminal closes.
func (s Sessions) End(ref string) (id string, err error) {
	id, over, err := s.find(ref)
	if err != nil {
		return "", err
	}
	if over {
		_, err := s.takeEnd(id)
		return id, err
	}
	if _, err := ask(s.files(socketSuffix)[id], message{End: true}); err != nil {
		return id, fmt.Errorf("session %s: %w", id, err)
	}
	return id, nil
}

// attached is a terminal that has a session.
type attached struct {
	Terminal
	c       *channel
	session Session
	lives   func() bool // asks the session anew

	mu   sync.Mutex
	left bool // by its user
}

// join carries both ways until the session ends or is left. The terminal closing leaves it: that is for the session to
// judge.
func (t Terminal) join(ctx context.Context, c *channel, session Session, lives func() bool) (Outcome, error) {
	restore := func() {}
	if old, err := term.MakeRaw(int(t.In.Fd())); err == nil {
		restore = func() { term.Restore(int(t.In.Fd()), old) }
	}
	defer restore()
	a := &attached{Terminal: t, c: c, session: session, lives: lives}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGWINCH, syscall.SIGHUP, syscall.SIGTERM)
	defer signal.Stop(signals)
	done := make(chan struct{})
	defer close(done)
	go a.follow(ctx, signals, done)
	go a.keys()
	out, err := a.show()
	restore()
	if out.Detached {
		fmt.Fprintf(t.Notes, "\ngrange: detached; `grange shell attach %s` goes on\n", session.ID)
	}
	return out, err
}

// follow tells the session of the terminal's size, and of its end.
func (a *attached) follow(ctx context.Context, signals <-chan os.Signal, done <-chan struct{}) {
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGWINCH {
				size := a.Size()
				a.c.send(message{Size: &size})
				continue
			}
			a.leave()
		case <-ctx.Done():
			a.leave()
		case <-done:
		}
		return
	}
}

// leave detaches. The session closes the connection when it has noted that.
func (a *attached) leave() {
	a.mu.Lock()
	a.left = true
	a.mu.Unlock()
	if a.c.send(message{Left: true}) != nil {
		a.c.conn.Close()
	}
	a.c.conn.SetReadDeadline(time.Now().Add(askLimit))
}

// keys carries what is typed to the session.
func (a *attached) keys() {
	typed := escapes{char: a.Escape}
	buf := make([]byte, 4<<10)
	for {
		n, err := a.In.Read(buf)
		data, do := typed.take(buf[:n])
		if len(data) > 0 && a.c.send(message{Data: data}) != nil {
			return
		}
		switch {
		case do == detach && a.session.Detach:
			a.leave()
			return
		case do == detach:
			a.say("its pool does not let this session go on without a terminal; %c. ends it", a.Escape)
		case do == end:
			a.say("the session is ended")
			a.c.send(message{End: true})
		case do == help:
			a.say("%c. ends the session, %cd detaches, %c%c types %c", a.Escape, a.Escape, a.Escape, a.Escape, a.Escape)
		}
		if err != nil { // the terminal has gone
			a.leave()
			return
		}
	}
}

func (a *attached) say(format string, args ...any) {
	fmt.Fprintf(a.Out, "\r\ngrange: "+format+"\r\n", args...)
}

// show carries the session's output to the terminal.
func (a *attached) show() (Outcome, error) {
	for {
		m, err := a.c.receive()
		switch {
		case err != nil:
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.left {
				return Outcome{Detached: a.session.Detach}, nil
			}
			if a.session.Detach && a.lives() {
				a.say("this terminal took nothing for %v", writeLimit)
				return Outcome{Detached: true}, nil
			}
			return Outcome{}, &farm.Error{Kind: farm.Unavailable, Code: CodeNoShell, Err: err,
				Message: "session " + a.session.ID + " broke: the process that keeps it was killed",
				Hint:    "its VM ends with it; start another one with `grange shell`"}
		case m.Ended != nil:
			return Outcome{Status: *m.Ended}, nil
		case m.Elsewhere:
			a.say("the session goes on at another terminal")
			return Outcome{}, nil
		case len(m.Data) > 0:
			if _, err := a.Out.Write(m.Data); err != nil && !errors.Is(err, syscall.EINTR) {
				a.leave()
			}
		}
	}
}
