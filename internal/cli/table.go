package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/output"
)

// table is how things of one kind are listed: each a line under a head, or all as JSON.
type table[T any] struct {
	none string // for people, where there is nothing to list; "": the head alone
	head string // of the columns, with tabs between
	line func(T) []any
}

func (t table[T]) print(a *app, all []T) error {
	if a.json {
		return a.printJSON(slices.Concat([]T{}, all))
	}
	if len(all) == 0 && t.none != "" {
		_, err := fmt.Fprintln(a.out, t.none)
		return err
	}
	w := output.NewColumns(a.out)
	fmt.Fprintln(w, t.head)
	for _, v := range all {
		w.Row(t.line(v)...)
	}
	return w.Flush()
}

// command lists what the server has.
func (t table[T]) command(a *app, short string, get func(context.Context, *fleet.Client) ([]T, error)) *cobra.Command {
	return &cobra.Command{Use: "list", Short: short, Args: cobra.NoArgs,
		RunE: a.onServer(func(ctx context.Context, c *fleet.Client, _ []string) error {
			all, err := get(ctx, c)
			if err != nil {
				return err
			}
			return t.print(a, all)
		})}
}
