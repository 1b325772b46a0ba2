package daemon

import (
	"context"
	"fmt"

	"github.com/grange-project/grange/internal/agent"
	"github.com/grange-project/grange/internal/agent/usage"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/systems"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
)

// openBroker is the driver of a broker; nil where there is no such system.
func openBroker(b config.Broker) (batch.System, error) {
	kind, ok := systems.Find(farm.BatchSystem(b.System))
	if !ok {
		return nil, nil
	}
	return kind.Open(b.Settings())
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

// batchOf is the batch system that a host belongs to; nil where none is configured.
func batchOf(c config.Batch) (batch.System, error) {
	system, err := openBroker(config.Broker{System: c.System, Program: c.Program})
	if err != nil {
		return nil, err
	}
	if _, takes := system.(batch.Commenter); c.Comments && !takes {
		return nil, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadConfig,
			Message: fmt.Sprintf("batch.comments: the system %q takes no comments of jobs", c.System),
			Hint:    "remove it from agent.toml, or set batch.system to slurm"}
	}
	return system, nil
}

// gateOf is what an agent tells when its host is sick; nil where there is no batch system.
func gateOf(system batch.System, c config.Batch) (agent.Gate, error) {
	if system == nil {
		return nil, nil
	}
	node, err := c.NodeName()
	if err != nil {
		return nil, err
	}
	return hostGate{system, node}, nil
}

// commentsOf is where an agent says what jobs have used in their VMs; nil: nowhere.
func commentsOf(system batch.System, c config.Batch) *usage.Comments {
	if !c.Comments {
		return nil
	}
	return &usage.Comments{System: system.Name(), Set: system.(batch.Commenter).Comment}
}
