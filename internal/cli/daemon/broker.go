package daemon

import (
	"context"
	"os"
	"strings"

	"github.com/grange-project/grange/internal/agent"
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

// gateOf is what an agent tells when its host is sick; nil where no batch system is configured.
func gateOf(c config.Batch) (agent.Gate, error) {
	system, err := openBroker(config.Broker{System: c.System, Program: c.Program})
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
