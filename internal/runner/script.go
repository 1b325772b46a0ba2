package runner

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

// scriptLine reads what PBS gives a batch job's login shell to read: one line, the path of the job's script. The shell
// in the VM reads it again. It reads no byte beyond that line, for those that follow are the shell's too.
func scriptLine(stdin *os.File) (string, error) {
	if term.IsTerminal(int(stdin.Fd())) {
		return "", nil
	}
	return readLine(stdin)
}

// readLine reads one line, with its end, byte by byte.
func readLine(from io.Reader) (string, error) {
	const longest = 4096 // of a path
	var line bytes.Buffer
	for one := make([]byte, 1); line.Len() < longest; {
		n, err := from.Read(one)
		line.Write(one[:n])
		if n == 1 && one[0] == '\n' || errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", err
		}
	}
	return line.String(), nil
}

// maxScript is the largest file that is sent into a VM as part of a request.
const maxScript = 64 << 20

// errNoScript is what readScript says of what need not or cannot be sent.
var errNoScript = errors.New("no regular file that can be read")

func readScript(path string) (*api.Script, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoScript, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w", path, errNoScript)
	}
	if info.Size() > maxScript {
		return nil, &farm.Error{Kind: farm.Invalid, Code: farm.CodeScriptSize,
			Message: fmt.Sprintf("%s has %v; at most %v are sent into a VM", path, farm.Bytes(info.Size()),
				farm.Bytes(maxScript)), Hint: "put it where the VM sees it: the working directory, or a bound one"}
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoScript, err)
	}
	return &api.Script{Path: path, Content: content}, nil
}

// shells are programs that take a script as their first argument.
var shells = []string{"sh", "bash", "dash", "ksh", "zsh", "csh", "tcsh"}

// scriptOf is the absolute path of the file that the command is, or that it is told to run: on the shell's input, or as
// its first argument; "" for a command that is looked for in PATH.
func scriptOf(argv []string, line, here string) string {
	path := argv[0]
	switch {
	case line != "":
		path = line
	case len(argv) > 1 && slices.Contains(shells, filepath.Base(path)) && strings.Contains(argv[1], "/") &&
		!strings.HasPrefix(argv[1], "-"):
		path = argv[1]
	}
	if !strings.Contains(path, "/") {
		return ""
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(here, path)
	}
	return filepath.Clean(path)
}
