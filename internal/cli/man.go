package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/version"
)

// manCommand is what `make install` calls: the manual says what --help says.
func manCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "man", Short: "Write the manual pages: grange.1, and one per command",
		Args: cobra.NoArgs, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, p := range manPages(cmd.Root()) {
				err := app.WriteFile(filepath.Join(dir, p.name+".1"), func(w io.Writer) error {
					_, err := io.WriteString(w, p.text)
					return err
				})
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", ".", "`DIR` to write to")
	cmd.MarkFlagDirname("dir")
	return cmd
}

type manPage struct{ name, text string }

func manPages(root *cobra.Command) []manPage {
	pages := []manPage{{root.Name(), overviewPage(root)}}
	for _, c := range listed(root) {
		pages = append(pages, manPage{root.Name() + "-" + c.Name(), commandPage(c)})
	}
	return pages
}

// listed are the subcommands that --help lists and that have something of their own to say.
func listed(c *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(c.Commands()), func(sub *cobra.Command) bool {
		return !sub.IsAvailableCommand() || sub.Name() == "help" || sub.Name() == "completion"
	})
}

func overviewPage(root *cobra.Command) string {
	var m manual
	m.head(root.Name(), root.Short)
	m.line(".SH SYNOPSIS\n.B %s\n.I command\n.RI [ option .\\|.\\|.]", roff(root.Name()))
	m.line(".SH DESCRIPTION")
	m.prose(root.Long)
	m.line(".SH COMMANDS")
	for _, c := range listed(root) {
		m.line(".TP\n.BR %s (1)\n%s", roff(root.Name()+"-"+c.Name()), roff(c.Short))
	}
	m.flags(".SH OPTIONS", root.PersistentFlags())
	return m.String()
}

func commandPage(c *cobra.Command) string {
	var m manual
	m.head(strings.ReplaceAll(c.CommandPath(), " ", "-"), c.Short)
	m.line(".SH SYNOPSIS")
	for _, leaf := range leaves(c) {
		m.line(".B %s\n.br", roff(leaf.UseLine()))
	}
	m.line(".SH DESCRIPTION")
	m.command(c, ".SH OPTIONS", ".SH EXAMPLES")
	if c.HasSubCommands() {
		m.line(".SH COMMANDS")
		for _, leaf := range leaves(c) {
			if leaf != c {
				m.line(".SS %s", quoted(leaf.CommandPath()))
				m.command(leaf, "", ".PP\nExamples:")
			}
		}
	}
	m.flags(".SH OPTIONS OF EVERY COMMAND", c.Root().PersistentFlags())
	m.line(".SH SEE ALSO\n.BR %s (1)", roff(c.Root().Name()))
	return m.String()
}

// leaves are the commands from c down that do something. Of those with subcommands these have flags: `grange server`.
func leaves(c *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	flags := 0
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			flags++
		}
	})
	if flags > 0 || !c.HasSubCommands() {
		all = append(all, c)
	}
	for _, sub := range listed(c) {
		all = append(all, leaves(sub)...)
	}
	return all
}

// manual is a page in the macros of man(7).
type manual struct{ strings.Builder }

func (m *manual) line(format string, args ...any) { fmt.Fprintf(m, format+"\n", args...) }

func (m *manual) head(name, short string) {
	m.line(".\\\" made from the commands themselves by `grange man`")
	m.line(".TH %s 1 \"\" %s \"grange\"", quoted(strings.ToUpper(name)), quoted("grange "+version.Release()))
	m.line(".ad l") // a line with one long word cannot be filled
	m.line(".SH NAME\n%s \\- %s", roff(name), roff(short))
}

func (m *manual) command(c *cobra.Command, options, examples string) {
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	m.prose(text)
	m.flags(options, c.LocalNonPersistentFlags())
	if c.Example != "" {
		m.line("%s", examples)
		m.verbatim(c.Example)
	}
}

// prose fills paragraphs. One with an indented line is a table or an example, and stays as it is.
func (m *manual) prose(text string) {
	for paragraph := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		m.line(".PP")
		if strings.HasPrefix(paragraph, " ") || strings.Contains(paragraph, "\n ") {
			m.verbatim(paragraph)
			continue
		}
		m.line("%s", roff(paragraph))
	}
}

func (m *manual) verbatim(text string) { m.line(".PP\n.nf\n%s\n.fi", roff(strings.Trim(text, "\n"))) }

func (m *manual) flags(title string, flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || f.Name == "version" {
			return
		}
		if title != "" {
			m.line("%s", title)
			title = ""
		}
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		m.line(".TP\n.BI %s %s\n%s", quoted(name+" "), quoted(value), breakable(roff(usage+byDefault(f))))
	})
}

func byDefault(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "[]", "0", "0s", "false":
		return ""
	}
	return " (default " + f.DefValue + ")"
}

// roff escapes what troff would read as its own.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "^", `\(ha`, "~", `\(ti`, "`", `\(ga`, "'", `\(aq`).Replace(text)
	lines := strings.Split(text, "\n")
	for n, line := range lines {
		if strings.HasPrefix(line, ".") {
			lines[n] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

// longWord is how many letters troff cannot always fill a line beside.
const longWord = 30

// breakable lets a line end before the brackets of a long word.
func breakable(text string) string {
	words := strings.Split(text, " ")
	for i, w := range words {
		if len(w) > longWord {
			words[i] = strings.ReplaceAll(w, "[", `\:[`)
		}
	}
	return strings.Join(words, " ")
}

// quoted is a macro's argument with blanks.
func quoted(text string) string { return `"` + strings.ReplaceAll(roff(text), `"`, `\(dq`) + `"` }
