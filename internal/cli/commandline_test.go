package cli

import (
	"bytes"
	"errors"
	"io/fs"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
)

// A command line that makes no sense is never answered with help and a good status: a script would go on.
func TestSenselessCommandLines(t *testing.T) {
	for _, c := range []struct{ args, message, hint string }{
		{"foo", "`grange` has no command \"foo\"", "see `grange --help`"},
		{"tun", "`grange` has no command \"tun\"", "did you mean tune?"},
		{"tune aduit", "`grange tune` has no command \"aduit\"", "did you mean audit?"},
		{"tune aduit --rule ept-off", "`grange tune` has no command \"aduit\"", "did you mean audit?"},
		{"host shw", "has no command \"shw\"", "did you mean show"},
		{"vm lst", "has no command \"lst\"", "did you mean list?"},
		{"image foo", "has no command \"foo\"", "see `grange image --help`"},
		{"completion bsh", "has no command \"bsh\"", "did you mean bash"},
		{"help tune aduit", "has no command \"aduit\"", "did you mean audit?"},
		{"help foo", "has no command \"foo\"", "see `grange --help`"},
		{"tune explain", "`grange tune explain` accepts 1 arg(s), received 0", "grange tune explain RULE"},
		{"tune audit now", "`grange tune audit` takes no argument, and got \"now\"", "--help"},
		{"image build a b c", "received 3", "grange image build micro"},
		{"tune audit --ruel x", "unknown flag: --ruel", "`grange tune audit --help`"},
		{"tune plan --from a --root b", "[from root]", "`grange tune plan --help`"},
		{"exec --wait --no-wait -- true", "[no-wait wait]", "`grange exec --help`"},
		{"exec", "no command", "grange exec -- COMMAND"},
	} {
		text, err := run(t, strings.Fields(c.args)...)
		own := new(farm.Error)
		if !errors.As(err, &own) || app.StatusOf(err) != app.ExitUsage || text != "" {
			t.Errorf("%s: %v, printed %q", c.args, err, text)
			continue
		}
		if !strings.Contains(own.Message, c.message) || !strings.Contains(own.Hint, c.hint) {
			t.Errorf("%s: %q, hint %q", c.args, own.Message, own.Hint)
		}
	}
}

func TestCommandsThatHoldOthersShowHelp(t *testing.T) {
	a := &app.App{}
	for _, c := range append(grange(a).Commands(), grange(a)) {
		// which are commands themselves: they would serve, start a session, or ask a server
		if !c.HasSubCommands() || slices.Contains([]string{"help", "server", "shell", "usage", "capacity"}, c.Name()) {
			continue
		}
		path := strings.Fields(c.CommandPath())[1:]
		text, err := run(t, path...)
		if again, _ := run(t, append(path, "help")...); again != text {
			t.Errorf("%s help: %s", c.CommandPath(), again)
		}
		if err != nil || !strings.Contains(text, c.CommandPath()+" [command]") ||
			strings.Contains(text, c.CommandPath()+" [flags]") {
			t.Errorf("%s: %v\n%s", c.CommandPath(), err, text)
		}
	}
}

// What a walk over all commands must not find: one that takes words without looking at them.
func TestCommandsCheckArguments(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if c.HasSubCommands() && (c.Args == nil || !c.Runnable()) {
			t.Errorf("%s takes any word", c.CommandPath())
		}
	}
	walk(grange(&app.App{}))
}

func TestNoAgent(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent.sock")
	_, err := run(t, "vm", "list", "--socket", socket)
	var b bytes.Buffer
	app.PrintError(&b, err)
	want := "grange: no agent answers on " + socket +
		": no such file or directory [no-agent]\n  try: start it with `grange agent`, or name its socket with " +
		"--socket\n"
	if b.String() != want || app.StatusOf(err) != app.ExitFailed {
		t.Errorf("%q\nwant %q", b.String(), want)
	}
}

func TestErrorsMoveNoCursor(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&fs.PathError{Op: "open", Path: "a\x1b[2Jb", Err: fs.ErrNotExist},
			"grange: open a\\x1b[2Jb: file does not exist\n"},
		{&fs.PathError{Op: "open", Path: "a\xffb\u202ec", Err: fs.ErrNotExist},
			"grange: open a\\xffb\\u202ec: file does not exist\n"},
		{&fs.PathError{Op: "open", Path: "a\ngrange: fine", Err: fs.ErrNotExist},
			"grange: open a\n    grange: fine: file does not exist\n"},
		{app.Usage("write \x07", "größer 中\x00"), "grange: größer 中\\x00 [usage]\n  try: write \\a\n"},
		{&url.Error{Op: "Get", URL: "http://agent/v1/vms", Err: errors.New("EOF")},
			"grange: the agent did not answer: EOF [no-agent]\n"},
	} {
		var b bytes.Buffer
		if app.PrintError(&b, c.err); !strings.HasPrefix(b.String(), c.want) {
			t.Errorf("%q, want %q", b.String(), c.want)
		}
	}
}

// TestRenamedFlags: the old name of a flag works for one more release, and says what the new one is.
func TestRenamedFlags(t *testing.T) {
	text, err := run(t, "host", "fit", "--cpus", "1", "--memory", "64M", "--pages", "3x")
	if err == nil || !strings.Contains(text, "it is called --page-size now") {
		t.Errorf("%v: %s", err, text)
	}
	if text, _ := run(t, "host", "fit", "--help"); strings.Contains(text, "--pages") {
		t.Errorf("help has the old name:\n%s", text)
	}
}

// run runs the command line, and gives what it prints and its error.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	a := &app.App{Out: &out, Err: &out}
	root := grange(a)
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&out)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}
