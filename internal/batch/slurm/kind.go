package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/grange-project/grange/internal/allotment"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// Kind is Slurm.
var Kind = batch.Kind{
	Name: farm.Slurm,
	Open: func(s batch.Settings) (batch.System, error) {
		return NewDriver(DriverOptions{Env: s.Env("SLURM_CONF"), Hold: s.Hold}, program.Start), nil
	},
	Lookup: lookup,
	Find:   allotment.Slurm,
	Limits: masterLimits,
	Holds:  batch.AnyHolds,
	// RequeueExit=199 in slurm.conf.
	Wrapper: &batch.Wrapper{Requeue: batch.ExitNotStarted, Temporary: "/tmp",
		Tried: func(getenv func(string) string, _ func(string) ([]byte, error)) int {
			n, _ := strconv.Atoi(getenv("SLURM_RESTART_COUNT"))
			return n
		}},
}

// lookup asks with the slurm.conf of the daemon that started the job, or else with the agent's own SLURM_CONF: on both
// root has the word.
func lookup(ctx context.Context, a farm.Allotment, pid int) (farm.Allotment, error) {
	conf := allotment.SlurmConf(os.DirFS("/"), pid)
	if conf == "" {
		conf = os.Getenv("SLURM_CONF")
	}
	var env []string
	if conf != "" {
		env = []string{"SLURM_CONF=" + conf}
	} else if !hasConf() {
		return a, fmt.Errorf("no slurm.conf on this host: %w", errors.ErrUnsupported)
	}
	return NewDriver(DriverOptions{Env: env}, program.Start).Lookup(ctx, a)
}

// hasConf reports whether Slurm's commands find a cluster by themselves: by the file of the packages, or by what a
// slurmd without one was sent.
func hasConf() bool {
	for _, path := range []string{"/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf"} {
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return false
}
