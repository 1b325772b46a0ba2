package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// testConsole is a console whose VM is the test.
func testConsole(t *testing.T) (*console, net.Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "console")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := newConsole(path)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); c.run(ctx) }()
	t.Cleanup(func() { cancel(); <-over })
	vm, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { vm.Close() })
	return c, vm
}

func read(t *testing.T, r io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
		t.Errorf("read %q, %v; want %q", got, err, want)
	}
}

func write(t *testing.T, w io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		t.Errorf("write %q: %v", text, err)
	}
}

// TestConsoleStreams: people at a console see the same, from what was kept of it on, and their typing arrives; the log
// goes on.
func TestConsoleStreams(t *testing.T) {
	c, vm := testConsole(t)
	write(t, vm, "booting\n")
	first := c.Open()
	read(t, first, "booting\n")
	second := c.Open()
	defer second.Close()
	read(t, second, "booting\n")
	write(t, first, "ls\n")
	write(t, second, "id\n")
	read(t, vm, "ls\nid\n")
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if _, err := first.Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a closed stream reads: %v", err)
	}
	write(t, vm, "bye\n")
	read(t, second, "bye\n")
	vm.Close()
	if _, err := second.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("at the console's end: %v", err)
	}
	if _, err := second.Write([]byte("x")); err == nil {
		t.Error("typed into a console that has gone")
	}
	if got := c.lastLines(10); got != "booting\nbye" {
		t.Errorf("the log: %q", got)
	}
}

// TestConsoleSlowReader: who does not read hinders nobody else.
func TestConsoleSlowReader(t *testing.T) {
	c, vm := testConsole(t)
	slow, quick := c.Open(), c.Open()
	line := bytes.Repeat([]byte("x"), 1000)
	for range 200 {
		write(t, vm, string(line))
		read(t, quick, string(line))
	}
	for _, s := range []io.Closer{slow, quick} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestConsoleLog: it is bounded, and outlives whoever writes.
func TestConsoleLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), consoleFile)
	line := []byte(strings.Repeat("x", 1<<16))
	for n := range 40 {
		l := newConsoleLog(path)
		l.write(line)
		l.write(fmt.Appendf(nil, "end %d", n))
		l.close()
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > consoleLogSize+2<<16 {
		t.Errorf("%v, %v", info, err)
	}
	if got := string(newConsoleLog(path).last(6)); got != "end 39" {
		t.Errorf("%q", got)
	}
	var none *consoleLog
	none.write(line)
	none.close()
}
