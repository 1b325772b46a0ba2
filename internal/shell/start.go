package shell

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
)

// readyLine is what a process says that keeps a session.
const readyLine = "ready\n"

// Start starts the process that keeps the session, in a session of its own so that it stays when this terminal goes: a
// command that calls Serve.
func (o Order) Start(keeper string, args ...string) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	cmd := exec.Command(keeper, args...)
	cmd.Stdin, cmd.SysProcAttr = bytes.NewReader(text), &syscall.SysProcAttr{Setsid: true}
	said, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	errs, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	word, _ := io.ReadAll(said) // it lets go of the pipe when it is ready, or ends
	if string(word) == readyLine {
		return nil
	}
	wrong, _ := io.ReadAll(errs)
	cmd.Wait()
	return &farm.Error{Kind: farm.Internal, Code: CodeNoShell,
		Message: "no session can be kept here: " + strings.TrimSpace(strings.TrimPrefix(string(wrong), "grange: ")),
		Hint:    "see whether /tmp can be written to; `grange exec --tty` needs no session"}
}

// Serve keeps the session that it reads the order of. It tells whoever started it when clients may come.
func (s Sessions) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	var o Order
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return err
	}
	return s.Keep(ctx, o, func() {
		io.WriteString(out, readyLine)
		letGo()
	})
}

// letGo leaves the files that this process was started with: whoever waits for their end waits no more.
func letGo() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	for fd := range 3 {
		if err := unix.Dup3(int(null.Fd()), fd, 0); err != nil {
			return err
		}
	}
	return nil
}
