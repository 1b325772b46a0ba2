package cli

import (
	"io"
	"os"
	"sync"

	"github.com/grange-project/grange/internal/farm"
)

// output is standard output that remembers what went wrong: a command that could not say what it found has not done its work, and
// few look at each line they print.
type output struct {
	to  io.Writer
	mu  sync.Mutex
	err error
}

// Write writes, and remembers the first error.
func (o *output) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

// lost is the error of output that did not arrive; nil when all did.
func (o *output) lost() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return unsaid("what was to be printed could not be written", o.err)
}

// unsaid is the error of output that was lost: what it was to say, in a sentence, and why it could not.
func unsaid(what string, err error) error {
	if err == nil {
		return nil
	}
	return &farm.Error{Kind: farm.Unavailable, Code: farm.CodeLostOutput, Message: what, Hint: "send the output to a place that takes it", Err: err}
}

// fileOf is the file that output goes to, where it goes to one: it may be a terminal.
func fileOf(w io.Writer) (*os.File, bool) {
	if o, ok := w.(*output); ok {
		w = o.to
	}
	f, ok := w.(*os.File)
	return f, ok
}
