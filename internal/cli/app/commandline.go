package app

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/grange-project/grange/internal/farm"
)

// strict makes a tree of commands refuse, as usage, whatever cobra would answer with help and status 0 or with an error
// of its own: words that are no command, a wrong number of arguments, flags that exclude each other.
func strict(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			c.Args = helpTopic
		}
	}
	strictArguments(root)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
			return noCommand(cmd, words[0]) // the flag may well be one of the command that was meant
		}
		return Usage(seeHelp(cmd), "%v", err)
	})
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := errors.Join(cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups()); err != nil {
			return Usage(seeHelp(cmd), "%v", err)
		}
		if what, ok := WithoutJSON[cmd.CommandPath()]; ok && cmd.Flags().Changed("json") {
			return Usage("leave --json out", "`%s` prints no JSON: %s", cmd.CommandPath(), what)
		}
		return nil
	}
	// Commands that only hold others can be run now, to refuse what is none of them. Their help need not show that.
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .Runnable}}",
		"{{if and .Runnable (not .HasAvailableSubCommands)}}", 1))
}

func strictArguments(c *cobra.Command) {
	for _, sub := range c.Commands() {
		strictArguments(sub)
	}
	if c.HasSubCommands() && !c.Runnable() {
		c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		c.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && args[0] != "help" { // as `grange help tune` shows it, too
				return noCommand(cmd, args[0])
			}
			return nil
		}
		return
	}
	if check := c.Args; check != nil {
		c.Args = func(cmd *cobra.Command, args []string) error { return wrongArguments(cmd, args, check(cmd, args)) }
	}
}

// wrongArguments puts cobra's errors of arguments into our words.
func wrongArguments(cmd *cobra.Command, args []string, err error) error {
	switch {
	case err == nil || errors.As(err, new(*farm.Error)):
		return err
	case strings.HasPrefix(err.Error(), "unknown command "): // what cobra.NoArgs says
		return Usage(seeHelp(cmd), "`%s` takes no argument, and got %q", cmd.CommandPath(), args[0])
	}
	return Usage(cmd.UseLine(), "`%s` %v", cmd.CommandPath(), err)
}

func helpTopic(help *cobra.Command, args []string) error {
	cmd, rest, err := help.Root().Find(args)
	if err == nil && cmd.HasSubCommands() && len(rest) > 0 {
		return noCommand(cmd, rest[0])
	}
	return err
}

func noCommand(parent *cobra.Command, word string) error {
	hint := seeHelp(parent)
	if parent.SuggestionsMinimumDistance <= 0 {
		parent.SuggestionsMinimumDistance = 2
	}
	if near := parent.SuggestionsFor(word); len(near) > 0 {
		hint = fmt.Sprintf("did you mean %s? %s", strings.Join(near, " or "), hint)
	}
	return Usage(hint, "`%s` has no command %q", parent.CommandPath(), word)
}

func seeHelp(cmd *cobra.Command) string { return "see `" + cmd.CommandPath() + " --help`" }

// WithoutJSON are the commands whose output is not their own, or has a form that others read, with what it is. Every
// other command that prints does so as JSON, too.
var WithoutJSON = map[string]string{
	"grange gridengine load-sensor": "Grid Engine reads it",
	"grange host record":            "it writes an archive; `grange host show --from FILE --json` reads it",
	"grange htcondor cron":          "HTCondor reads a ClassAd",
	"grange htcondor prepare":       "HTCondor reads a ClassAd",
	"grange lsf elim":               "LSF reads it",
	"grange lsf esub":               "LSF reads it",
	"grange man":                    "it writes manual pages",
	"grange sim":                    "its figures are those of the server: `grange server status --json`",
	"grange ssh":                    "its output is that of ssh",
	"grange vm connect":             "its output is that of the VM's port",
}

// OldFlag keeps the old name of a flag for one more release.
func OldFlag(flags *pflag.FlagSet, old, name string) *pflag.Flag {
	f := *flags.Lookup(name)
	f.Name, f.Hidden = old, true
	flags.AddFlag(&f)
	return &f
}

// RenamedFlag is OldFlag with a notice to who uses it.
func RenamedFlag(flags *pflag.FlagSet, old, name string) {
	OldFlag(flags, old, name).Deprecated = "it is called --" + name + " now"
}
