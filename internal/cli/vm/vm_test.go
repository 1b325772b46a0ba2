package vm

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
)

// hostile is a name that does more to a terminal than be printed.
const hostile = "a\x1b]0;owned\x07\x1b[2J\u202e\u009b\x9b\x7f\xff\x0c\x0bb"

// moves reports whether a terminal does something else than print r.
func moves(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) && r != '\n' && r != '\t' }

// TestVMListOfHostileNames: root lists what others called their jobs.
func TestVMListOfHostileNames(t *testing.T) {
	vm := api.VM{Name: "grange-1", User: hostile, Command: hostile + "\ngrange-2  running  root",
		Image: hostile, Batch: hostile, Created: time.Now(),
		Cloud: &api.CloudVM{Reason: "it ended:\n  " + hostile}}
	var b bytes.Buffer
	a := &app.App{Out: output.Text{To: &b}}
	if err := printVMs(a.Out, []api.VM{vm}); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsFunc(b.String(), moves) || strings.Count(b.String(), "\n") != 2 {
		t.Errorf("%q", b.String())
	}
	b.Reset()
	if err := (vmCommands{a}).showVM(vm); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsFunc(b.String(), moves) || strings.Contains(b.String(), "\ngrange-2") {
		t.Errorf("%q", b.String())
	}
}
