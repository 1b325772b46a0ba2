package vm

import (
	"bytes"
	"strings"
	"sync"
)

// lineReader collects a command's output and lets a test wait for a line of it.
type lineReader struct {
	mu      sync.Mutex
	changed sync.Cond
	buf     bytes.Buffer
	ended   bool
}

func newLineReader() *lineReader {
	r := &lineReader{}
	r.changed.L = &r.mu
	return r
}

func (r *lineReader) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed.Broadcast()
	return r.buf.Write(p)
}

func (r *lineReader) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.changed.Broadcast()
}

// await reports whether the line came before the end.
func (r *lineReader) await(line string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if strings.Contains("\n"+r.buf.String(), "\n"+line+"\n") {
			return true
		}
		if r.ended {
			return false
		}
		r.changed.Wait()
	}
}

func (r *lineReader) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.String()
}
