package host

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/flavor"
)

// malformed is the answer to a case that makes no sense.
type malformed struct {
	ID    string `json:"id"`
	Error string `json:"error"`
}

// fitCases answers the placement cases of a file, one line each.
func (a fitCommands) fitCases(path string) error {
	in := io.Reader(os.Stdin)
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return app.Usage("name a file of placement cases, or - for standard input", "%v", err)
		}
		defer f.Close()
		in = f
	}
	cases, err := flavor.Read(in)
	if err != nil {
		return err
	}
	bad := 0
	lines := output.NewJSON(a.Out)
	table := output.NewColumns(a.Out)
	for _, text := range cases {
		c, err := flavor.Parse(text)
		if err != nil {
			bad++
		}
		if !a.JSON {
			row(table, c, flavor.ID(text), err)
			continue
		}
		var answer any = malformed{ID: flavor.ID(text), Error: fmt.Sprint(err)}
		if err == nil {
			answer = flavor.Fit(c)
		}
		if err := lines.Encode(answer); err != nil {
			return fmt.Errorf("write answers: %w", err)
		}
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write answers: %w", err)
	}
	if bad > 0 {
		fmt.Fprintf(a.Err, "grange: %d of %d cases make no sense\n", bad, len(cases))
		return app.ExitError{Status: app.ExitFailed}
	}
	return nil
}

// row is a case's answer for people: node and host CPUs of each cell, or the reason.
func row(w io.Writer, c flavor.Case, id string, err error) {
	if err != nil {
		fmt.Fprintf(w, "%s\tmakes no sense\t%v\n", id, err)
		return
	}
	answer := flavor.Fit(c)
	if !answer.Fits {
		fmt.Fprintf(w, "%s\tdoes not fit\t%s\n", id, answer.Reason)
		return
	}
	var cells []string
	for _, cell := range answer.Cells {
		text := fmt.Sprintf("node %d", cell.HostCell)
		var cpus []int
		for _, cpu := range cell.Pin {
			cpus = append(cpus, cpu)
		}
		if slices.Sort(cpus); len(cpus) > 0 {
			text += " CPUs " + cpuList(cpus)
		}
		if len(cell.Reserved) > 0 {
			text += " and " + cpuList(cell.Reserved)
		}
		cells = append(cells, text)
	}
	fmt.Fprintf(w, "%s\tfits\t%s\n", id, strings.Join(cells, "; "))
}
