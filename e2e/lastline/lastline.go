// Package lastline prints the last line of the test programs: one object of JSON, with "failed".
package lastline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// Print prints the figures, which are a struct, as a line of JSON that begins with "failed": how many of the checks did
// not hold.
func Print(figures any, failed int) error { return fprint(os.Stdout, figures, failed) }

func fprint(to io.Writer, figures any, failed int) error {
	text, err := json.Marshal(figures)
	if err != nil {
		return err
	}
	fields, ok := bytes.CutPrefix(text, []byte("{"))
	if !ok {
		return fmt.Errorf("figures are %.20s, not an object", text)
	}
	comma := ","
	if fields[0] == '}' {
		comma = ""
	}
	_, err = fmt.Fprintf(to, `{"failed":%d%s%s`+"\n", failed, comma, fields)
	return err
}

// Count is the 1 of a check that did not hold.
func Count(wrong bool) int {
	if wrong {
		return 1
	}
	return 0
}
