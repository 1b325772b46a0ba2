package bench

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/atomicfile"
	"github.com/grange-project/grange/internal/bench"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
)

func (a benchCommands) gateCommand() *cobra.Command {
	var file, baseline string
	var save bool
	least := 2.0
	cmd := &cobra.Command{Use: "gate", Short: "Compare the last measurement with a baseline, and fail on a loss",
		Args: cobra.NoArgs,
		Long: `Compare the last measurement of "grange bench run" on this host with the baseline of its hardware, for an upgrade
of the kernel, of QEMU, microcode or settings: before it, save a baseline; behind it, measure the same, and
ask the gate. VMs are slower where they lost more than --least, more than the noise of both measurements, and
not by chance.

Exit status 4: a loss. 1: it cannot be told.`,
		Example: "  grange bench run --size 4x8,1x32 && grange bench gate --save\n" +
			"  apt upgrade && reboot\n  grange bench run --size 4x8,1x32 && grange bench gate",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, measurements, err := measured(file, cmd)
			if err != nil {
				return err
			}
			if !(least >= 0 && least < 100) {
				return app.Usage("for example 2", "--least %g is no part in per cent", least)
			}
			from := cmp.Or(baseline, filepath.Join(c.StateDir, "bench-baseline.json"))
			last := measurements[len(measurements)-1]
			if save {
				return a.saveBaseline(from, last)
			}
			return a.gate(from, last, least/100)
		}}
	cmd.Flags().BoolVar(&save, "save", false, "make the last measurement the baseline")
	cmd.Flags().StringVar(&baseline, "baseline", "",
		"`FILE` of the baseline, which hosts of the same kind may share (default: bench-baseline.json of the agent's state)")
	cmd.Flags().Float64Var(&least, "least", least, "what counts as a loss, in per cent")
	cmd.Flags().StringVar(&file, "config", app.DefaultConfig, "the agent's configuration `FILE`")
	return cmd
}

func (a benchCommands) saveBaseline(to string, m bench.Measurement) error {
	text, err := json.MarshalIndent(m, "", " ")
	if err == nil {
		err = atomicfile.Write(to, append(text, '\n'), 0o644)
	}
	if err == nil && !a.JSON {
		_, err = fmt.Fprintf(a.Out, "the measurement of %s is the baseline now: %s\n", m.Time.Local().Format("2 January 15:04"),
			to)
	}
	return err
}

func (a benchCommands) gate(from string, last bench.Measurement, least float64) error {
	text, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return &farm.Error{Kind: farm.NotFound, Code: bench.CodeBench, Message: "there is no baseline " + from,
			Hint: "measure before the upgrade: `grange bench run`, then `grange bench gate --save`"}
	}
	var base bench.Measurement
	if err == nil {
		err = json.Unmarshal(text, &base)
	}
	if err != nil {
		return err
	}
	if !last.Time.After(base.Time) {
		return &farm.Error{Kind: farm.Conflict, Code: bench.CodeBench, Message: "nothing was measured since the baseline",
			Hint: "`" + base.Command + "`"}
	}
	g, err := bench.Gate(base, last, least)
	if err != nil {
		return err
	}
	if a.JSON {
		err = a.PrintJSON(g)
	} else {
		_, err = fmt.Fprint(a.Out, g.Table())
	}
	if err == nil && g.Lost {
		err = app.ExitError{Status: app.ExitLost}
	}
	return err
}
