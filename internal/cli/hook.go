package cli

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
)

func hookCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "hook FILE [ARGUMENT...]",
		Short: "Run the command in a hook file, for batch systems",
		Long: `Run the command that is written in FILE, followed by the arguments given here.

FILE is an executable file whose first line names grange as its interpreter. The remaining
lines are the words of one command; comments, which begin with #, are ignored. Use such a
file where a batch system accepts only the path of a program as a hook. It needs no shell: a
shell is dynamically linked, and would load libraries that the job's user chooses.`,
		Example: `  #!/usr/bin/grange hook
  # starter_method of all queues
  exec --batch gridengine --socket /run/grange/agent.sock --`,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && (args[0] == "--help" || args[0] == "-h") {
				return cmd.Help()
			}
			if len(args) == 0 {
				return app.Usage(cmd.UseLine(), "no file")
			}
			words, err := hookWords(args[0])
			if err != nil {
				return err
			}
			again := grange(a)
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
		return nil, app.Usage("", "the hook: %v", err)
	}
	var words []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			words = append(words, strings.Fields(line)...)
		}
	}
	if len(words) == 0 || words[0] == "hook" {
		return nil, app.Usage("see `grange hook --help`", "%s holds no command", path)
	}
	return words, nil
}
