package batchsystem

import (
	"fmt"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
)

// tellFindings prints what a check of a batch system found. The exit status is 1 when something is broken.
func tellFindings(a *app.App, findings []batch.Finding) error {
	if a.JSON {
		if err := a.PrintJSON(findings); err != nil {
			return err
		}
	} else {
		t := output.NewColumns(a.Out)
		for _, f := range findings {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", f.Level, f.ID, f.Found, f.Where)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		for _, f := range findings {
			if f.Level != batch.Good {
				fmt.Fprintf(a.Out, "\n%s: %s\n  why: %s\n  do:  %s\n", f.ID, f.Found, f.Why, f.Do)
			}
		}
	}
	if batch.Worst(findings) == batch.Broken {
		return app.ExitError{Status: app.ExitFailed}
	}
	return nil
}
