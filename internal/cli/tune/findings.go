package tune

import (
	"context"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/tuning"
	"github.com/grange-project/grange/internal/tuning/apply"
)

// FindingsOf are what one rule finds on this host.
func FindingsOf(ctx context.Context, system apply.System, rule string) ([]tuning.Finding, error) {
	return findingsAt(ctx, system, applyFlags{choice: choice{only: []string{rule}}})
}

// AgentGate is this host's agent as what keeps new VMs away.
func AgentGate(client *api.Client) apply.Gate { return agentGate{client} }
