package app

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/output"
)

// Table is how things of one kind are listed: each a line under a head, or all as JSON.
type Table[T any] struct {
	None string // for people, where there is nothing to list; "": the head alone
	Head string // of the columns, with tabs between
	Line func(T) []any
}

// Print prints all as lines of the table, or as JSON.
func (t Table[T]) Print(a *App, all []T) error {
	if a.JSON {
		return a.PrintJSON(slices.Concat([]T{}, all))
	}
	if len(all) == 0 && t.None != "" {
		_, err := fmt.Fprintln(a.Out, t.None)
		return err
	}
	w := output.NewColumns(a.Out)
	fmt.Fprintln(w, t.Head)
	for _, v := range all {
		w.Row(t.Line(v)...)
	}
	return w.Flush()
}

// Command lists what the server has.
func (t Table[T]) Command(a *App, short string, get func(context.Context, *fleet.Client) ([]T, error)) *cobra.Command {
	return &cobra.Command{Use: "list", Short: short, Args: cobra.NoArgs,
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, _ []string) error {
			all, err := get(ctx, c)
			if err != nil {
				return err
			}
			return t.Print(a, all)
		})}
}
