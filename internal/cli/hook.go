package cli

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) hookCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "hook FILE [ARGUMENT...]",
		Short: "Run the command that a hook file holds: for batch systems that take a program and no arguments",
		Long: `Run the command that FILE holds, with the arguments behind its own. FILE is a program for the kernel: its first line names grange as what
runs it, and the others are words of one command, comments behind # left out. So a batch system's hook that can only be a path is a file
like the example, without a shell between: a shell is linked dynamically, and would load what the job's user tells it to.`,
		Example: `  #!/usr/bin/grange hook
  # starter_method of all queues
  exec --batch gridengine --socket /run/grange/agent.sock --`,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && (args[0] == "--help" || args[0] == "-h") {
				return cmd.Help()
			}
			if len(args) == 0 {
				return usage(cmd.UseLine(), "no file")
			}
			words, err := hookWords(args[0])
			if err != nil {
				return err
			}
			again := a.root()
			again.SetArgs(append(words, args[1:]...))
			return again.ExecuteContext(cmd.Context())
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
}

// hookWords reads the words of a hook file.
func hookWords(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, usage("", "the hook: %v", err)
	}
	var words []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			words = append(words, strings.Fields(line)...)
		}
	}
	if len(words) == 0 || words[0] == "hook" {
		return nil, usage("see `grange hook --help`", "%s holds no command", path)
	}
	return words, nil
}
