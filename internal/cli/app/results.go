package app

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/grange-project/grange/internal/atomicfile"
)

// KeepResults writes what was measured to a file, for --show. It was measured all the same where that fails.
func (a *App) KeepResults(file string, results any) {
	text, err := json.MarshalIndent(results, "", " ")
	if err == nil {
		err = atomicfile.Write(file, append(text, '\n'), 0o644)
	}
	if err != nil {
		fmt.Fprintf(a.Err, "the results are not kept: %v\n", err)
	}
}

// PrintResults prints what was measured as a table, or as JSON, and draws it to svg as well; "" does not.
func (a *App) PrintResults(results any, table string, svg string, picture func() string) error {
	if svg != "" {
		if err := os.WriteFile(svg, []byte(picture()), 0o644); err != nil {
			return err
		}
	}
	if a.JSON {
		return a.PrintJSON(results)
	}
	_, err := fmt.Fprint(a.Out, table)
	return err
}
