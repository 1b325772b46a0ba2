package shell

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pty"
	"github.com/grange-project/grange/internal/waittest"
)

func TestEscapes(t *testing.T) {
	for _, c := range []struct {
		typed []string
		data  string
		do    action
	}{
		{[]string{"ls ~d\r"}, "ls ~d\r", nothing},
		{[]string{"~d"}, "", detach},
		{[]string{"ls\r", "~", "d rest"}, "ls\r", detach},
		{[]string{"ls\n~."}, "ls\n", end},
		{[]string{"~~.\r"}, "~.\r", nothing},
		{[]string{"~/bin/x\r~?"}, "~/bin/x\r", help},
		{[]string{"~\r~d"}, "~\r", detach},
	} {
		e, data, do := escapes{char: '~'}, []byte{}, nothing
		for _, typed := range c.typed {
			var some []byte
			some, do = e.take([]byte(typed))
			data = append(data, some...)
		}
		if string(data) != c.data || do != c.do {
			t.Errorf("%q: %q, %d; want %q, %d", c.typed, data, do, c.data, c.do)
		}
	}
	off := escapes{}
	if data, do := off.take([]byte("~d\x00")); string(data) != "~d\x00" || do != nothing {
		t.Errorf("without escapes: %q, %d", data, do)
	}
}

// screen is a terminal that a test sits at.
type screen struct {
	Terminal
	keys *os.File
	mu   sync.Mutex
	text bytes.Buffer
}

func newScreen(t *testing.T) *screen {
	t.Helper()
	ours, child, err := pty.Open()
	if err != nil {
		t.Skip("no pseudo-terminals here: ", err)
	}
	t.Cleanup(func() { ours.Close(); child.Close() })
	if err := pty.Resize(ours, 25, 70); err != nil {
		t.Fatal(err)
	}
	s := &screen{keys: ours, Terminal: Terminal{In: child, Out: child, Escape: '~', Notes: child}}
	go func() {
		buf := make([]byte, 1024)
		for {
			n, err := ours.Read(buf)
			s.mu.Lock()
			s.text.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

// shows waits for a text.
func (s *screen) shows(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(waittest.Limit); ; time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		all := s.text.String()
		s.mu.Unlock()
		if strings.Contains(all, text) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the screen never showed %q, but %q", text, all)
		}
	}
}

type attachment struct {
	Outcome
	err error
}

// attach attaches a new screen.
func attach(t *testing.T, s Sessions, ref string) (*screen, <-chan attachment) {
	t.Helper()
	view, done := newScreen(t), make(chan attachment, 1)
	go func() {
		o, err := s.Attach(t.Context(), ref, view.Terminal)
		done <- attachment{o, err}
	}()
	return view, done
}

// keep keeps a command, and returns what its keeping comes to.
func keep(t *testing.T, s Sessions, id string, detach bool, script string) <-chan error {
	t.Helper()
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- s.Keep(t.Context(), Order{Argv: []string{"/bin/sh", "-c", script}, Size: Size{20, 60},
			Session: Session{ID: id, Command: "sh", Detach: detach}}, func() { close(ready) })
	}()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	return done
}

// TestSession is left, gone on with at another terminal of another size, taken by a third one, and ends with its
// command's status.
func TestSession(t *testing.T) {
	s := Sessions{Base: t.TempDir(), User: os.Getuid()}
	kept := keep(t, s, "aaaa1111", true,
		`trap 'echo size $(stty size)' WINCH; while :; do read x || continue; test "$x" = end && exit 7; echo got $x; done`)
	first, left := attach(t, s, "")
	fmt.Fprint(first.keys, "one\r")
	first.shows(t, "got one")
	fmt.Fprint(first.keys, "~d")
	if a := <-left; a.err != nil || !a.Detached {
		t.Fatalf("%+v", a)
	}
	if all := s.List(); len(all) != 1 || all[0].Attached || all[0].ID != "aaaa1111" || all[0].Process != os.Getpid() {
		t.Errorf("%+v", all)
	}
	second, taken := attach(t, s, "aa")
	fmt.Fprint(second.keys, "two\r")
	second.shows(t, "got two")
	second.shows(t, "size 25 70")
	third, done := attach(t, s, "aaaa1111")
	if a := <-taken; a.err != nil || a.Detached {
		t.Errorf("%+v", a)
	}
	second.shows(t, "another terminal")
	fmt.Fprint(third.keys, "end\r")
	if a := <-done; a.err != nil || a.Status != 7 {
		t.Errorf("%+v", a)
	}
	if err := <-kept; err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(s.Base); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestEndedAlone: the end is kept for whoever comes next, once, with what nobody saw.
func TestEndedAlone(t *testing.T) {
	s := Sessions{Base: t.TempDir(), User: os.Getuid()}
	if err := <-keep(t, s, "bbbb2222", true, "echo unseen; exit 3"); err != nil {
		t.Fatal(err)
	}
	if all := s.List(); len(all) != 1 || all[0].Ended == nil || all[0].Status != 3 {
		t.Errorf("%+v", all)
	}
	view, done := attach(t, s, "")
	if a := <-done; a.err != nil || a.Status != 3 {
		t.Errorf("%+v", a)
	}
	view.shows(t, "unseen")
	if _, err := s.Attach(t.Context(), "", view.Terminal); codeOf(err) != CodeNoShell {
		t.Errorf("a second time: %v", err)
	}
	if left, _ := os.ReadDir(s.Base); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func codeOf(err error) farm.Code {
	if own, ok := errors.AsType[*farm.Error](err); ok {
		return own.Code
	}
	return ""
}

// TestNotLeft: a session that may not go on without a terminal is not left by an escape, and ends with its terminal.
func TestNotLeft(t *testing.T) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // below nohup, shells could not trap it
	s := Sessions{Base: t.TempDir(), User: os.Getuid()}
	kept := keep(t, s, "cccc3333", false, `trap 'exit 4' HUP; echo up; while :; do sleep 0.1; done`)
	view, _ := attach(t, s, "")
	view.shows(t, "up")
	fmt.Fprint(view.keys, "\r~d")
	view.shows(t, "does not let this session go on")
	view.keys.Close()
	if err := <-kept; err != nil {
		t.Error(err)
	}
	if all := s.List(); len(all) != 1 || all[0].Status != 4 {
		t.Errorf("%+v", all)
	}
}

// TestEnd: a command that does not want to ends all the same.
func TestEnd(t *testing.T) {
	old := slices.Clone(steps)
	defer func() { copy(steps, old) }()
	for i := range steps {
		steps[i].wait = 10 * time.Millisecond
	}
	s := Sessions{Base: t.TempDir(), User: os.Getuid()}
	kept := keep(t, s, "dddd4444", true, `trap '' HUP TERM INT; echo up; while :; do sleep 1; done`)
	view, done := attach(t, s, "")
	view.shows(t, "up")
	if id, err := s.End("d"); err != nil || id != "dddd4444" {
		t.Fatal(id, err)
	}
	if a := <-done; a.err != nil || a.Status != 137 {
		t.Errorf("%+v", a)
	}
	if err := <-kept; err != nil {
		t.Error(err)
	}
}

// TestAmbiguous: nothing is guessed.
func TestAmbiguous(t *testing.T) {
	s := Sessions{Base: t.TempDir(), User: os.Getuid()}
	for _, id := range []string{"eeee0001", "eeee0002"} {
		<-keep(t, s, id, true, "true")
	}
	for _, ref := range []string{"", "eeee"} {
		if _, _, err := s.find(ref); codeOf(err) != CodeNoShell || !strings.Contains(err.Error(), "2 of your") {
			t.Errorf("%q: %v", ref, err)
		}
	}
	if id, over, err := s.find("eeee0002"); id != "eeee0002" || !over || err != nil {
		t.Error(id, over, err)
	}
}

// TestStrangersDirectories: sessions are neither looked for nor put where others may write, or what is another's.
func TestStrangersDirectories(t *testing.T) {
	base := t.TempDir()
	s := Sessions{Base: base, User: os.Getuid()}
	name := func(end string) string { return filepath.Join(base, fmt.Sprintf("grange-shell-%d-%s", s.User, end)) }
	for end, mode := range map[string]os.FileMode{"open": 0o777, "read": 0o750} {
		if err := errors.Join(os.Mkdir(name(end), mode), os.Chmod(name(end), mode)); err != nil {
			t.Fatal(err)
		}
	}
	mine := t.TempDir()
	if err := errors.Join(os.Chmod(mine, 0o700), os.Symlink(mine, name("link"))); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := errors.Join(os.Mkdir(name("theirs"), 0o700), os.Chown(name("theirs"), 12345, 12345)); err != nil {
			t.Fatal(err)
		}
	}
	if found := s.dirs(); len(found) > 0 {
		t.Errorf("taken for ours: %v", found)
	}
	made, err := s.dir()
	if again, _ := s.dir(); err != nil || again != made || len(s.dirs()) != 1 {
		t.Errorf("%s, %s, %v", made, again, err)
	}
}

// TestEndsAreBounded: old ends make room for new ones.
func TestEndsAreBounded(t *testing.T) {
	s := Sessions{Base: t.TempDir(), User: os.Getuid()}
	dir, err := s.dir()
	if err != nil {
		t.Fatal(err)
	}
	for i := range mostEnded + 5 {
		id := fmt.Sprintf("%08d", i)
		if err := s.keepEnd(dir, ended{Session: Session{ID: id, Ended: new(time.Time)}}); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(time.Duration(i-100) * time.Second)
		if err := os.Chtimes(filepath.Join(dir, id+endedSuffix), at, at); err != nil {
			t.Fatal(err)
		}
	}
	if kept := s.files(endedSuffix); len(kept) != mostEnded || kept["00000000"] != "" || kept["00000024"] == "" {
		t.Errorf("%d are kept: %v", len(kept), kept)
	}
}
