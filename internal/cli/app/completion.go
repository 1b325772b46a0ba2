package app

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/batch/systems"
)

// Complete offers words for a flag, each of a list too. For a profile the shell offers files as well.
func Complete(cmd *cobra.Command, flag string, words func() []string) {
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
			return Beginning(typed, before, words()), directive
		})
	if err != nil {
		panic(err) // a flag that has its words already
	}
}

// CompleteFirst offers words for the first argument of a command.
func CompleteFirst(words func() []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return Beginning(typed, "", words()), cobra.ShellCompDirectiveNoFileComp
	}
}

// Beginning are the words that go on as typed, with what stands before them in a list. A word of the list is not
// offered twice.
func Beginning(typed, before string, words []string) []string {
	var out []string
	for _, word := range words {
		name, _, _ := strings.Cut(word, "\t")
		if strings.HasPrefix(before+name, typed) && !strings.Contains(","+before, ","+name+",") {
			out = append(out, before+word)
		}
	}
	return out
}

// CompleteNames offers names that the server knows for the first argument. A server that is slow is none: the shell
// waits.
func (a *App) CompleteNames(cmd *cobra.Command, args []string, typed string,
	list func(context.Context, *fleet.Client) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	c, err := a.Fleet()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 3*time.Second)
	defer cancel()
	names, err := list(ctx, c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return Beginning(typed, "", names), cobra.ShellCompDirectiveNoFileComp
}

// CompleteHosts offers the hosts of the fleet that are not named yet.
func (a *App) CompleteHosts(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	c, err := a.Fleet()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 3*time.Second)
	defer cancel()
	hosts, _, err := c.Hosts.List(ctx, "")
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, h := range hosts {
		if strings.HasPrefix(h.Name, typed) && !slices.Contains(args, h.Name) {
			names = append(names, h.Name+"\t"+h.State)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// CompleteImages offers the images of this host.
func (a *App) CompleteImages(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	images, err := a.Client().Images(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, i := range images {
		names = append(names, i.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// NamesOf returns the name of each.
func NamesOf[T any](all []T, name func(T) string) []string {
	names := make([]string, len(all))
	for i, v := range all {
		names[i] = name(v)
	}
	return names
}

// BatchWords are the batch systems that run jobs of ours.
func BatchWords() []string {
	var words []string
	for _, s := range systems.WithJobs() {
		words = append(words, string(s))
	}
	return words
}
