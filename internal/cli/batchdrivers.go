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
	"github.com/grange-project/grange/internal/batch/htcondor"
	"github.com/grange-project/grange/internal/batch/lsf"
	"github.com/grange-project/grange/internal/batch/pbs"
	"github.com/grange-project/grange/internal/batch/program"
	"github.com/grange-project/grange/internal/batch/slurm"
	"github.com/grange-project/grange/internal/config"
)

// batchSystem is the driver of a batch system, as it is configured; nil where there is none.
func batchSystem(c config.Batch) (batch.System, error) {
	switch c.System {
	case "slurm":
		var env []string
		if conf := os.Getenv("SLURM_CONF"); conf != "" { // the agent's own, from whoever started it
			env = []string{"SLURM_CONF=" + conf}
		}
		return slurm.NewDriver(slurm.DriverOptions{Env: env}, program.Start), nil
	case "pbs":
		return pbs.NewDriver(pbs.DriverOptions{}, program.Start), nil
	case "lsf":
		return lsfDriver(), nil
	case "htcondor":
		return htcondor.NewDriver(htcondor.DriverOptions{}, program.Start), nil
	case "exec":
		return exec.New(exec.Options{Program: c.Program}, program.Start)
	}
	return nil, nil
}

// brokerSystem is the driver of a cell's batch system, with the environment that the server's configuration gives its commands; nil where
// there is no such driver.
func brokerSystem(b config.Broker) (batch.System, error) {
	var env []string
	for _, key := range slices.Sorted(maps.Keys(b.Environment)) {
		env = append(env, key+"="+b.Environment[key])
	}
	switch {
	case b.System == "slurm" && env != nil:
		return slurm.NewDriver(slurm.DriverOptions{Env: env}, program.Start), nil
	case b.System == "lsf" && env != nil:
		return lsf.NewDriver(lsf.DriverOptions{Bin: b.Environment["LSF_BINDIR"], Env: env}, program.Start), nil
	case b.System == "htcondor" && env != nil:
		return htcondor.NewDriver(htcondor.DriverOptions{Env: env}, program.Start), nil
	case b.System == "exec":
		return exec.New(exec.Options{Program: b.Program, Env: env}, program.Start)
	}
	return batchSystem(config.Batch{System: b.System})
}

// lsfDriver finds LSF where the agent's own environment says: LSF's installation has no usual place.
func lsfDriver() *lsf.Driver {
	o := lsf.DriverOptions{Bin: os.Getenv("LSF_BINDIR")}
	for _, key := range []string{"LSF_ENVDIR", "LSF_SERVERDIR", "LSF_LIBDIR"} {
		if v := os.Getenv(key); v != "" {
			o.Env = append(o.Env, key+"="+v)
		}
	}
	return lsf.NewDriver(o, program.Start)
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
	system, err := batchSystem(c)
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
