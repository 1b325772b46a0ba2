package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

const hostileName = "a\x1b]0;owned\x07\x1b[2J\u202e\u009b\x9b\x7f\xff\x0c\x0bb"

// TestTextIsVisible: whatever text holds, a terminal prints it and does nothing else; what is to be printed arrives.
func TestTextIsVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext\n":      "plain\ttext\n",
		"größe ✓":            "größe ✓",
		"\x1b[31mred\x1b[0m": `\x1b[31mred\x1b[0m`,
		hostileName:          `a\x1b]0;owned\a\x1b[2J\u202e\u009b\x9b\x7f\xff\f\vb`,
		"back\rspace\b":      `back\rspace\b`,
	} {
		var b bytes.Buffer
		if n, err := (Text{&b}).Write([]byte(in)); err != nil || n != len(in) || b.String() != want {
			t.Errorf("%q: %q, %d, %v", in, b.String(), n, err)
		}
	}
}

// TestCellsStayCells: a name with a line break makes no line of a table, and one with a tab no column.
func TestCellsStayCells(t *testing.T) {
	var b bytes.Buffer
	w := NewColumns(Text{&b})
	fmt.Fprintln(w, "NAME\tSTATE")
	w.Row(hostileName+"\nroot\trunning", 1)
	w.Row("other", 2)
	w.Flush()
	if lines := strings.Split(b.String(), "\n"); len(lines) != 4 || strings.ContainsFunc(b.String(), unprinted) ||
		!strings.HasPrefix(lines[2], "other  ") {
		t.Errorf("%q", b.String())
	}
}

// TestJSONIsExact: it says the same, and a terminal that it is shown on does nothing.
func TestJSONIsExact(t *testing.T) {
	name := strings.ToValidUTF8(hostileName, "\ufffd") + "\U000e0001 größe"
	var b bytes.Buffer
	if err := NewJSON(Text{&b}).Encode(map[string]string{"name": name}); err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || got["name"] != name {
		t.Errorf("%q, %v: %s", got, err, b.Bytes())
	}
	if strings.ContainsFunc(b.String(), unprinted) || !utf8.Valid(b.Bytes()) || !strings.Contains(b.String(), "größe") {
		t.Errorf("%q", b.String())
	}
}
