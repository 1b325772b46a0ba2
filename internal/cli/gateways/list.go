package gateways

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/gateway/features"
)

func list(a *app.App) *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List what each gateway keeps of a file system, and what not",
		Long: `List what a program may expect of a bound directory (grange exec --bind), and which gateway keeps
it. The first features protect the host: no gateway may lack them. A bind can demand any of them:
--bind SRC:needs=FEATURE,... takes a gateway that keeps them all, and is refused where none does.`,
		Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
			all := shown()
			if a.JSON {
				return a.PrintJSON(all)
			}
			return write(a.Out, all)
		}}
}

// feature is one as it is shown.
type feature struct {
	Name     string `json:"feature"`
	Means    string `json:"means"`
	Always   bool   `json:"always"` // no gateway may lack it
	Gateways []kept `json:"gateways"`
}

type kept struct {
	Gateway string `json:"gateway"`
	Kept    bool   `json:"kept"`
	Why     string `json:"why,omitempty"` // not
}

func shown() []feature {
	var all []feature
	for _, f := range features.All {
		row := feature{Name: f.Name, Means: f.Means, Always: f.Must}
		for _, g := range features.Gateways {
			lack, lacking := g.Lacks[f.Name]
			row.Gateways = append(row.Gateways, kept{string(g.Name), !lacking, lack.Why})
		}
		all = append(all, row)
	}
	return all
}

func write(w io.Writer, all []feature) error {
	t := output.NewColumns(w)
	head := []string{"FEATURE"}
	for _, k := range all[0].Gateways {
		head = append(head, strings.ToUpper(k.Gateway))
	}
	fmt.Fprintln(t, strings.Join(append(head, "MEANS"), "\t"))
	var reasons []string
	for _, f := range all {
		row := []any{f.Name}
		for _, k := range f.Gateways {
			row = append(row, map[bool]string{true: "yes", false: "no"}[k.Kept])
			if !k.Kept {
				reasons = append(reasons, fmt.Sprintf("%s: no %s: %s", k.Gateway, f.Name, k.Why))
			}
		}
		t.Row(append(row, f.Means)...)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	slices.SortStableFunc(reasons, func(a, b string) int {
		before := func(s string) string { name, _, _ := strings.Cut(s, ":"); return name }
		return cmp.Compare(before(a), before(b))
	})
	_, err := fmt.Fprintf(w, "\n%s\n", strings.Join(reasons, "\n"))
	return err
}
