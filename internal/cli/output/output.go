// Package output is where commands print: text that does nothing to a terminal, tables, and JSON.
package output

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

// CodeLostOutput is of what a command printed that could not be written; see docs/errors.md.
const CodeLostOutput farm.Code = "lost-output"

// Stream is standard output that remembers what went wrong: a command that could not say what it found has not done its
// work, and few look at each line they print.
type Stream struct {
	To  io.Writer
	mu  sync.Mutex
	err error
}

// Write writes, and remembers the first error.
func (o *Stream) Write(p []byte) (int, error) {
	n, err := o.To.Write(p)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

// Lost is the error of output that did not arrive; nil when all did.
func (o *Stream) Lost() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return Unsaid("what was to be printed could not be written", o.err)
}

// Unsaid is the error of output that was lost: what it was to say, in a sentence, and why it could not.
func Unsaid(what string, err error) error {
	if err == nil {
		return nil
	}
	return &farm.Error{Kind: farm.Unavailable, Code: CodeLostOutput, Message: what,
		Hint: "send the output to a place that takes it", Err: err}
}

// FileOf is the file that output goes to, where it goes to one: it may be a terminal.
func FileOf(w io.Writer) (*os.File, bool) {
	w = RawOf(w)
	if o, ok := w.(*Stream); ok {
		w = o.To
	}
	f, ok := w.(*os.File)
	return f, ok
}

// Text is where text for people goes: whatever it is made of, nothing in it moves the cursor, starts a terminal's
// command or reorders what is read. What is raw by nature (JSON, recordings, a console) goes to RawOf it.
type Text struct{ To io.Writer }

// Write writes p with all that is not printed as Go writes it in a string.
func (w Text) Write(p []byte) (int, error) {
	if !bytes.ContainsFunc(p, unprinted) {
		return w.To.Write(p)
	}
	if _, err := io.WriteString(w.To, Visible(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// OnRaw is where text for people goes while a program has their terminal: there a new line begins below the end of the
// last one.
func OnRaw(w io.Writer) io.Writer { return Text{rawTerminal{RawOf(w)}} }

type rawTerminal struct{ to io.Writer }

func (t rawTerminal) Write(p []byte) (int, error) {
	if _, err := t.to.Write(bytes.ReplaceAll(p, []byte("\n"), []byte("\r\n"))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// RawOf is the writer below text for people; what is no text for people is written there.
func RawOf(w io.Writer) io.Writer {
	if t, ok := w.(Text); ok {
		return t.To
	}
	return w
}

func unprinted(r rune) bool {
	return r == utf8.RuneError || !unicode.IsPrint(r) && r != '\n' && r != '\t'
}

// Visible writes characters that could move the cursor or reorder text as Go does: paths come from anywhere.
func Visible(s string) string {
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

// OneLine is Visible for text that must stay a line, or a cell of a table.
func OneLine(s string) string {
	return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(Visible(s))
}

// NewJSON writes values as JSON to where text goes. Characters that are not printed are escaped, which is the same
// JSON.
func NewJSON(w io.Writer) *json.Encoder { return json.NewEncoder(printedJSON{RawOf(w)}) }

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

// Columns is a table for people.
type Columns struct{ *tabwriter.Writer }

// NewColumns is a table that is printed to w when it is flushed.
func NewColumns(w io.Writer) Columns { return Columns{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)} }

// Write writes cells and lines: tabs and line breaks in them are the table's. (Other characters mean something to
// tabwriter, too.)
func (c Columns) Write(p []byte) (int, error) { return Text{c.Writer}.Write(p) }

// Row writes a line of the table, of cells that may hold anything.
func (c Columns) Row(cells ...any) {
	for i, cell := range cells {
		if i > 0 {
			io.WriteString(c.Writer, "\t")
		}
		io.WriteString(c.Writer, OneLine(fmt.Sprint(cell)))
	}
	io.WriteString(c.Writer, "\n")
}
