package api

import (
	"context"
	"net/url"
	"time"
)

// Pool is a preset for people who work in VMs of a host, as its agent has it for the caller.
type Pool struct {
	Name      string   `json:"name"`
	About     string   `json:"about,omitempty"`
	Image     string   `json:"image,omitempty"` // that a VM has which asks for none; "": the host's default
	Images    []string `json:"images,omitempty"`
	Shape     string   `json:"shape,omitempty"`
	Shapes    []string `json:"shapes,omitempty"`
	Network   string   `json:"network,omitempty"`
	Home      bool     `json:"home,omitempty"`
	Binds     []string `json:"binds,omitempty"`
	MaxCPUs   int      `json:"max_cpus,omitempty"`   // 0: no limit of the pool
	MaxMemory uint64   `json:"max_memory,omitempty"` // bytes; 0: no limit of the pool
	// seconds after which a VM ends: without use, and in all; 0: never
	Idle    int64    `json:"idle_s,omitempty"`
	Total   int64    `json:"total_s,omitempty"`
	AtOnce  int      `json:"at_once,omitempty"` // VMs on the host; 0: as many as fit
	PerUser int      `json:"per_user,omitempty"`
	Detach  bool     `json:"detach"`
	Batch   string   `json:"batch,omitempty"` // the batch system whose jobs the VMs are
	Options []string `json:"options,omitempty"`
	VMs     int      `json:"vms"` // of the pool on the host now
}

// Pools are the pools of one agent's host.
type Pools struct{ agent *Client }

// Pools are those of the agent's host.
func (c *Client) Pools() Pools { return Pools{c} }

// List returns the pools that the caller may use.
func (p Pools) List(ctx context.Context) ([]Pool, error) {
	return call[[]Pool](ctx, p.agent, "GET", "/v1/pools", nil)
}

// Grant is Client.Grant for a job in a pool; "": in none.
func (p Pools) Grant(ctx context.Context, pool string) (Grant, error) {
	return call[Grant](ctx, p.agent, "GET", "/v1/grant?pool="+url.QueryEscape(pool), nil)
}

// ActiveInterval is how often a caller needs to say at most that its user does something.
const ActiveInterval = 2 * time.Second

// Active reports that the user of a job in a pool does something: an idle one is ended.
func (p Pools) Active(ctx context.Context, job string) error {
	_, err := call[struct{}](ctx, p.agent, "POST", "/v1/jobs/"+url.PathEscape(job)+"/active", nil)
	return err
}
