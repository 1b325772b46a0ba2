package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// placeholder is a word that the reader replaces: IMAGE, <id>, $JOB, …, a|b.
var placeholder = regexp.MustCompile(`^[A-Z][A-Z_/:=.…0-9-]*$|[<>…\[\]{}|$*]|\.\.\.`)

// line is a command line of grange as far as it was followed.
type line struct {
	command *cobra.Command
	args    []string
	open    bool // words are left out of args
}

// wrong says what of a command line is not of the program; "" when all is.
func wrong(root *cobra.Command, words []string, whole bool) string {
	l := line{command: root}
	for len(words) > 0 && !l.ends(words[0]) {
		n, text := l.take(words)
		if text != "" {
			return text
		}
		words = words[n:]
	}
	if whole && !l.open && len(words) == 0 {
		if err := l.command.ValidateArgs(l.args); err != nil {
			return err.Error()
		}
	}
	return ""
}

// ends reports whether nothing more of the line is grange's.
func (l *line) ends(word string) bool {
	if l.command.DisableFlagParsing || word == "--" || strings.HasPrefix(word, ">") {
		return true
	}
	return l.command.Name() == "exec" && !strings.HasPrefix(word, "-") // the command that is run
}

// take follows one word, and the value of a flag. It returns how many words these were, or what is wrong.
func (l *line) take(words []string) (int, string) {
	word := words[0]
	if strings.HasPrefix(word, "-") && word != "-" {
		return l.flag(words)
	}
	if placeholder.MatchString(word) || !l.command.HasSubCommands() {
		l.args, l.open = append(l.args, word), l.open || placeholder.MatchString(word)
		return 1, ""
	}
	if sub := child(l.command, word); sub != nil {
		l.command = sub
		return 1, ""
	}
	if l.open || l.command.Runnable() && l.command.Args != nil && l.command.Args(l.command, []string{word}) == nil {
		return len(words), ""
	}
	return 0, fmt.Sprintf("`%s` has no command %q", l.command.CommandPath(), word)
}

// flag follows a flag with its value.
func (l *line) flag(words []string) (int, string) {
	flag, text := flagOf(l.command, strings.TrimRight(words[0], ",.:"))
	if text != "" || flag == nil {
		return 1, text
	}
	value, has := valueOf(flag, words)
	if has && !strings.Contains(words[0], "=") && len(words) > 1 {
		return 2, refused(l.command, flag, value)
	}
	return 1, refused(l.command, flag, value)
}

// valueOf is what a flag is given by the words that begin with it; not has where it takes nothing.
func valueOf(flag *pflag.Flag, words []string) (value string, has bool) {
	if flag == nil || flag.NoOptDefVal != "" {
		return "", false
	}
	if _, value, has = strings.Cut(words[0], "="); !has && len(words) > 1 {
		value = words[1]
	}
	return value, true
}

// refused says that a flag does not take a value; values that the reader replaces are left out.
func refused(c *cobra.Command, flag *pflag.Flag, value string) string {
	if flag == nil || value == "" || placeholder.MatchString(value) {
		return ""
	}
	if err := flag.Value.Set(value); err != nil {
		return fmt.Sprintf("`%s --%s` refuses %s: %v", c.CommandPath(), flag.Name, value, err)
	}
	return ""
}

// child is a command of c.
func child(c *cobra.Command, word string) *cobra.Command {
	if word == "help" || word == "completion" || word == "__complete" {
		return &cobra.Command{Use: word, DisableFlagParsing: true}
	}
	for _, sub := range c.Commands() {
		if sub.Name() == word || sub.HasAlias(word) {
			return sub
		}
	}
	return nil
}

// flagOf finds the flag of a word, nil where there is nothing to compare.
func flagOf(c *cobra.Command, word string) (*pflag.Flag, string) {
	c.InitDefaultHelpFlag()
	name, _, _ := strings.Cut(word, "=")
	c.Root().InitDefaultVersionFlag()
	long, isLong := strings.CutPrefix(name, "--")
	if isLong {
		if placeholder.MatchString(long) {
			return nil, ""
		}
		if f := c.Flag(long); f != nil && !f.Hidden {
			return f, ""
		}
		return nil, fmt.Sprintf("`%s` has no flag %s", c.CommandPath(), name)
	}
	c.InheritedFlags()
	if f := c.Flags().ShorthandLookup(name[1:2]); f != nil {
		return f, ""
	}
	return nil, fmt.Sprintf("`%s` has no flag %s", c.CommandPath(), name)
}

// checkCommands compares the command lines of pages with the commands that there are. What stands behind a prompt is a
// whole command, with its arguments.
func checkCommands(root *cobra.Command, p page) (n int, problems []problem) {
	check := func(at snippet, whole bool) {
		for _, words := range calls(at.text) {
			n++
			if text := wrong(root, words, whole); text != "" {
				problems = append(problems, problem{p.name, at.line, text})
			}
		}
	}
	for _, s := range p.spans {
		check(s, false)
	}
	for _, b := range p.fence {
		for i, line := range joined(b.text) {
			check(snippet{b.line + i, line}, prompt.MatchString(line))
		}
	}
	return n, problems
}

// prompt is before what somebody types.
var prompt = regexp.MustCompile(`^[$#] `)

// joined are the lines of a block by number, with continued ones in the place of the first.
func joined(text string) map[int]string {
	lines, from := map[int]string{}, -1
	for i, line := range strings.Split(text, "\n") {
		cut, more := strings.CutSuffix(line, "\\")
		if from < 0 {
			from = i
		}
		lines[from] += cut
		if !more {
			from = -1
		}
	}
	return lines
}
