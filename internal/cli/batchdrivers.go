package cli

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/agent"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/exec"
	"github.com/grange-project/grange/internal/batch/gridengine"
	"github.com/grange-project/grange/internal/batch/htcondor"
	"github.com/grange-project/grange/internal/batch/lsf"
	"github.com/grange-project/grange/internal/batch/pbs"
	"github.com/grange-project/grange/internal/batch/program"
	"github.com/grange-project/grange/internal/batch/slurm"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
)

// batchDriver is the driver of a batch system, as it is configured; nil where there is no such driver. Its commands get
// the environment of the configuration, or else what of our own, from whoever started us, is the system's.
func batchDriver(b config.Broker) (batch.System, error) {
	environ := os.Environ()
	env := func(keys ...string) []string { return those(environ, keys...) }
	if len(b.Environment) > 0 {
		environ = nil
		for _, key := range slices.Sorted(maps.Keys(b.Environment)) {
			environ = append(environ, key+"="+b.Environment[key])
		}
		env = func(...string) []string { return environ }
	}
	var queue string // PBS and LSF have options that name one, and no others that keep a job out of VMs
	if len(b.Hold) > 0 {
		queue = b.Hold[0]
	}
	switch farm.BatchSystem(b.System) {
	case farm.Slurm:
		return slurm.NewDriver(slurm.DriverOptions{Env: env("SLURM_CONF"), Hold: b.Hold}, program.Start), nil
	case farm.GridEngine:
		return gridengine.NewDriver(gridengine.FromEnvironment(environ),
			gridengine.DriverOptions{Projects: b.Projects, Parallel: b.Parallel, Hold: b.Hold}), nil
	case farm.HTCondor:
		return htcondor.NewDriver(htcondor.DriverOptions{Env: env("CONDOR_CONFIG")}, program.Start), nil
	case farm.PBS:
		return pbs.NewDriver(pbs.DriverOptions{Conf: valueOf(environ, "PBS_CONF_FILE"), Hold: queue}, program.Start),
			nil
	case farm.LSF:
		o := lsfOptions(environ)
		if o.Hold = queue; len(b.Environment) > 0 {
			o.Env = environ
		}
		return lsf.NewDriver(o, program.Start), nil
	case farm.ExecDriver:
		return exec.New(exec.Options{Program: b.Program, Env: env()}, program.Start)
	}
	return nil, nil
}

// lsfOptions say where LSF is: its installation has no usual place.
func lsfOptions(environ []string) lsf.DriverOptions {
	return lsf.DriverOptions{Bin: valueOf(environ, "LSF_BINDIR"),
		Env: those(environ, "LSF_ENVDIR", "LSF_SERVERDIR", "LSF_LIBDIR")}
}

// those are the variables of these names that are set.
func those(environ []string, keys ...string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		key, value, _ := strings.Cut(kv, "=")
		return value == "" || !slices.Contains(keys, key)
	})
}

func valueOf(environ []string, key string) string {
	for _, kv := range those(environ, key) {
		return strings.TrimPrefix(kv, key+"=")
	}
	return ""
}

// hostGate is this host's place in its batch system.
type hostGate struct {
	system batch.System
	node   string
}

func (g hostGate) Close(ctx context.Context, reason string) error {
	return g.system.Close(ctx, g.node, reason)
}

func (g hostGate) Open(ctx context.Context) error { return g.system.Open(ctx, g.node) }

// gateOf is what an agent tells when its host is sick; nil where no batch system is configured.
func gateOf(c config.Batch) (agent.Gate, error) {
	system, err := batchDriver(config.Broker{System: c.System, Program: c.Program})
	if err != nil || system == nil {
		return nil, err
	}
	node := c.Node
	if node == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, err
		}
		node, _, _ = strings.Cut(host, ".")
	}
	return hostGate{system, node}, nil
}
