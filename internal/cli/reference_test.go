package cli

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/grange-project/grange/internal/cli/app"
)

var update = flag.Bool("update", false, "write the reference anew")

// TestReference holds docs/reference/cli.md equal to the commands: every command, every flag.
func TestReference(t *testing.T) {
	t.Setenv("GRANGE_SOCKET", "")
	t.Setenv("GRANGE_SERVER", "")
	t.Setenv("GRANGE_PROJECT", "")
	root := grange(&app.App{Out: io.Discard, Err: io.Discard})
	root.InitDefaultHelpFlag()
	var b strings.Builder
	b.WriteString("# Command line\n\nMade from the commands themselves: `go test ./internal/cli -run Reference " +
		"-update`.\n\n")
	b.WriteString("Every command takes these:\n\n")
	writeFlags(&b, root.PersistentFlags())
	b.WriteString("\n## Exit statuses\n\n`grange exec` ends with the status of its command. Others:\n\n" +
		"| status | of | means |\n|---|---|---|\n")
	for _, e := range app.ExitStatuses {
		fmt.Fprintf(&b, "| %d | %s | %s |\n", e.Status, e.Where, e.Meaning)
	}
	writeCommand(t, &b, root)
	file := filepath.Join("..", "..", "docs", "reference", "cli.md")
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), b.String()); d != "" {
		t.Errorf("docs/reference/cli.md is not what the commands say; -update writes it anew\n%s", d)
	}
}

func writeCommand(t *testing.T, b *strings.Builder, c *cobra.Command) {
	t.Helper()
	if c.Short == "" {
		t.Errorf("%s has no short description", c.CommandPath())
	}
	if !c.HasSubCommands() || c.HasParent() && c.LocalNonPersistentFlags().HasAvailableFlags() {
		fmt.Fprintf(b, "\n## %s\n\n", c.CommandPath())
		text := c.Long
		if text == "" {
			text = c.Short + "."
		}
		fmt.Fprintf(b, "%s\n\n```\n%s\n```\n", text, c.UseLine())
		if c.Example != "" {
			fmt.Fprintf(b, "\nExamples:\n\n```\n%s\n```\n", c.Example)
		}
		if flags := c.LocalNonPersistentFlags(); flags.HasAvailableFlags() {
			b.WriteString("\n")
			writeFlags(b, flags)
		}
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" && sub.Name() != "completion" {
			writeCommand(t, b, sub)
		}
	}
}

func writeFlags(b *strings.Builder, flags *pflag.FlagSet) {
	b.WriteString("| flag | default | meaning |\n|---|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name, usage := pflag.UnquoteUsage(f)
		flag := "--" + f.Name
		if f.Shorthand != "" {
			flag = "-" + f.Shorthand + ", " + flag
		}
		if name != "" {
			flag += " " + name
		}
		value := f.DefValue
		if value == "[]" || value == "0" || value == "0s" || value == "false" {
			value = ""
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", flag, value, usage)
	})
}
