package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/grange-project/grange/internal/allotment"
	"github.com/grange-project/grange/internal/batch/lsf"
	"github.com/grange-project/grange/internal/batch/program"
	"github.com/grange-project/grange/internal/batch/slurm"
	"github.com/grange-project/grange/internal/farm"
)

// lookupJob asks a batch system, as root, what the kernel does not know of a job on this host. Slurm is asked with the
// slurm.conf of the daemon that started the job, or else with the agent's own SLURM_CONF: on both root has the word. A
// host without the commands has no way to ask.
func lookupJob(ctx context.Context, a farm.Allotment, pid int) (farm.Allotment, error) {
	told, err := askJob(ctx, a, pid)
	if program.Missing(err) {
		err = fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	return told, err
}

func askJob(ctx context.Context, a farm.Allotment, pid int) (farm.Allotment, error) {
	if a.System == farm.LSF {
		return lsf.NewDriver(lsfOptions(os.Environ()), program.Start).Lookup(ctx, a)
	}
	if a.System != farm.Slurm {
		return a, fmt.Errorf("this agent has no way to ask %s about a job: %w", a.System, errors.ErrUnsupported)
	}
	conf := allotment.SlurmConf(os.DirFS("/"), pid)
	if conf == "" {
		conf = os.Getenv("SLURM_CONF")
	}
	var env []string
	if conf != "" {
		env = []string{"SLURM_CONF=" + conf}
	} else if !hasSlurmConf() {
		return a, fmt.Errorf("no slurm.conf on this host: %w", errors.ErrUnsupported)
	}
	return slurm.NewDriver(slurm.DriverOptions{Env: env}, program.Start).Lookup(ctx, a)
}

// hasSlurmConf reports whether Slurm's commands find a cluster by themselves: by the file of the packages, or by what a
// slurmd without one was sent.
func hasSlurmConf() bool {
	for _, path := range []string{"/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf"} {
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return false
}
