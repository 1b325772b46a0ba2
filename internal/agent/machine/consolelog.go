package machine

import (
	"os"
	"path/filepath"
)

// consoleLog keeps what a cloud VM wrote to its console over restarts of VM, agent and host, beside its disks:
// the newest MiB or two. What cannot be written is lost; the VM goes on.
type consoleLog struct {
	path string
	size int64
	file *os.File // nil before the first byte
}

// consoleFile is in the directory of a VM's disks; with ".old" behind its name it holds what was before.
const consoleFile = "console.log"

const consoleLogSize = 1 << 20

func newConsoleLog(path string) *consoleLog { return &consoleLog{path: path} }

// write appends. One goroutine writes; a nil log keeps nothing.
func (l *consoleLog) write(p []byte) {
	if l == nil || len(p) == 0 {
		return
	}
	if l.file == nil || l.size > consoleLogSize {
		l.open()
	}
	if l.file != nil {
		n, _ := l.file.Write(p)
		l.size += int64(n)
	}
}

func (l *consoleLog) open() {
	l.close()
	info, err := os.Stat(l.path)
	if err == nil && info.Size() > consoleLogSize {
		os.Rename(l.path, l.path+".old")
	}
	if l.file, err = os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		l.file = nil
		return
	}
	if info, err = l.file.Stat(); err == nil {
		l.size = info.Size()
	}
}

func (l *consoleLog) close() {
	if l != nil && l.file != nil {
		l.file.Close()
		l.file = nil
	}
}

// last is the end of what is kept, at most n bytes.
func (l *consoleLog) last(n int64) []byte {
	f, err := os.Open(l.path)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	text := make([]byte, min(n, info.Size()))
	got, _ := f.ReadAt(text, info.Size()-int64(len(text)))
	return text[:got]
}

// LastOfConsole is the end of what was kept of a console in a directory of disks.
func LastOfConsole(disks string) []byte {
	return newConsoleLog(filepath.Join(disks, consoleFile)).last(consoleTail)
}

// KeepConsole has the machine's console kept beside its disks.
func (m *Machine) KeepConsole() { m.Console.log = newConsoleLog(filepath.Join(m.Disks, consoleFile)) }
