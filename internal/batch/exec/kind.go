package exec

import (
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// Kind is a batch system that a site's own program drives. The agent does not recognise its jobs.
var Kind = batch.Kind{
	Name: farm.ExecDriver,
	Open: func(s batch.Settings) (batch.System, error) {
		system, err := New(Options{Program: s.Program, Env: s.Env()}, program.Start)
		if err != nil {
			return nil, err
		}
		return system, nil
	},
	Program: true,
}
