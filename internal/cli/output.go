package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/grange-project/grange/internal/farm"
)

// output is standard output that remembers what went wrong: a command that could not say what it found has not done its
// work, and few look at each line they print.
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
	return &farm.Error{Kind: farm.Unavailable, Code: CodeLostOutput, Message: what,
		Hint: "send the output to a place that takes it", Err: err}
}

// fileOf is the file that output goes to, where it goes to one: it may be a terminal.
func fileOf(w io.Writer) (*os.File, bool) {
	w = rawOf(w)
	if o, ok := w.(*output); ok {
		w = o.to
	}
	f, ok := w.(*os.File)
	return f, ok
}

// text is where text for people goes: whatever it is made of, nothing in it moves the cursor, starts a terminal's
// command or reorders what is read. What is raw by nature (JSON, recordings, a console) goes to rawOf it.
type text struct{ to io.Writer }

// Write writes p with all that is not printed as Go writes it in a string.
func (w text) Write(p []byte) (int, error) {
	if !bytes.ContainsFunc(p, unprinted) {
		return w.to.Write(p)
	}
	if _, err := io.WriteString(w.to, visible(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

func rawOf(w io.Writer) io.Writer {
	if t, ok := w.(text); ok {
		return t.to
	}
	return w
}

func unprinted(r rune) bool {
	return r == utf8.RuneError || !unicode.IsPrint(r) && r != '\n' && r != '\t'
}

// visible writes characters that could move the cursor or reorder text as Go does: paths come from anywhere.
func visible(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && size == 1 || !unicode.IsPrint(r) && r != '\n' && r != '\t' {
			quoted := strconv.Quote(s[:size])
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteString(s[:size])
		}
		s = s[size:]
	}
	return b.String()
}

// oneLine is visible for text that must stay a line, or a cell of a table.
func oneLine(s string) string {
	return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(visible(s))
}

// newJSON writes values as JSON to where text goes. Characters that are not printed are escaped, which is the same
// JSON.
func newJSON(w io.Writer) *json.Encoder { return json.NewEncoder(printedJSON{rawOf(w)}) }

// printedJSON takes whole JSON values: there, all beyond ASCII is within strings.
type printedJSON struct{ to io.Writer }

func (w printedJSON) Write(p []byte) (int, error) {
	if !bytes.ContainsFunc(p, unprinted) {
		return w.to.Write(p)
	}
	var b bytes.Buffer
	for _, r := range string(p) {
		switch {
		case !unprinted(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	if _, err := w.to.Write(b.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// columns is a table for people.
type columns struct{ *tabwriter.Writer }

func newColumns(w io.Writer) columns { return columns{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)} }

// Write writes cells and lines: tabs and line breaks in them are the table's. (Other characters mean something to
// tabwriter, too.)
func (c columns) Write(p []byte) (int, error) { return text{c.Writer}.Write(p) }

// row writes a line of the table, of cells that may hold anything.
func (c columns) row(cells ...any) {
	for i, cell := range cells {
		if i > 0 {
			io.WriteString(c.Writer, "\t")
		}
		io.WriteString(c.Writer, oneLine(fmt.Sprint(cell)))
	}
	io.WriteString(c.Writer, "\n")
}
