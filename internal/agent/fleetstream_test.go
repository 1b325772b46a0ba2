package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
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
	first := c.open()
	read(t, first, "booting\n")
	second := c.open()
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
	slow, quick := c.open(), c.open()
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

func TestDialVM(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	w := fleet.WantedVM{Name: "web", Bridge: "lo", Address: "127.0.0.1/8"}
	c, err := dialVM(t.Context(), w, port)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	l.Close()
	isolated, elsewhere := w, w
	isolated.Bridge, elsewhere.Bridge = "", "nosuch0"
	for name, try := range map[string]struct {
		w    fleet.WantedVM
		port int
		code farm.Code
	}{
		"nobody there": {w, port, farm.CodeVMPort}, "no network": {isolated, port, farm.CodeVMPort},
		"no bridge": {elsewhere, port, farm.CodeVMPort},
		"port 0":    {w, 0, farm.CodeBadRequest}, "port 65536": {w, 65536, farm.CodeBadRequest},
	} {
		var e *farm.Error
		if _, err := dialVM(t.Context(), try.w, try.port); !errors.As(err, &e) || e.Code != try.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	var e *farm.Error
	if _, err := (&Agent{}).Stream(t.Context(),
		fleet.StreamOrder{VM: "nosuch", Kind: fleet.StreamConsole}); !errors.As(err, &e) || e.Code != farm.CodeNoVM {
		t.Errorf("a VM that is not here: %v", err)
	}
}
