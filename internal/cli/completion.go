package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/tuning"
)

// complete offers words for a flag, each of a list too. For a profile the shell offers files as well.
func complete(cmd *cobra.Command, flag string, words func() []string) {
	directive := cobra.ShellCompDirectiveNoFileComp
	if flag == "profile" {
		directive = cobra.ShellCompDirectiveDefault
	}
	list := cmd.Flags().Lookup(flag).Value.Type() == "stringSlice"
	err := cmd.RegisterFlagCompletionFunc(flag,
		func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			before := ""
			if list {
				before = typed[:strings.LastIndex(typed, ",")+1]
			}
			return beginning(typed, before, words()), directive
		})
	if err != nil {
		panic(err) // a flag that has its words already
	}
}

// completeFirst offers words for the first argument of a command.
func completeFirst(words func() []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return beginning(typed, "", words()), cobra.ShellCompDirectiveNoFileComp
	}
}

// beginning are the words that go on as typed, with what stands before them in a list. A word of the list is not
// offered twice.
func beginning(typed, before string, words []string) []string {
	var out []string
	for _, word := range words {
		name, _, _ := strings.Cut(word, "\t")
		if strings.HasPrefix(before+name, typed) && !strings.Contains(","+before, ","+name+",") {
			out = append(out, before+word)
		}
	}
	return out
}

func ruleIDs() []string {
	var ids []string
	for _, r := range tuning.Rules() {
		ids = append(ids, r.ID+"\t"+r.Title)
	}
	return ids
}

func profileNames() []string {
	var names []string
	for _, p := range tuning.Profiles() {
		names = append(names, p.Name+"\t"+p.Title)
	}
	return names
}
