package fleet

import (
	"context"
	"encoding/json"
	"net/url"
)

// HostClient has the requests about hosts.
type HostClient struct{ client *Client }

// List returns the hosts, of one cell when it is not empty.
func (c HostClient) List(ctx context.Context, cell string) ([]Host, int64, error) {
	return all[Host](ctx, c.client, "/v1/hosts", cellQuery(cell))
}

func cellQuery(cell string) url.Values {
	if cell == "" {
		return nil
	}
	return url.Values{"cell": {cell}}
}

// Get looks one up, by name or ID.
func (c HostClient) Get(ctx context.Context, ref string) (Host, error) {
	return call[Host](ctx, c.client, request{method: "GET", path: "/v1/hosts/" + url.PathEscape(ref)})
}

// Open opens hosts to new VMs, by names, IDs and patterns ("wn-*"); it returns those that were chosen. So do the
// next three.
func (c HostClient) Open(ctx context.Context, patterns []string) ([]Host, error) {
	return c.verb(ctx, "open", patterns, nil)
}

// Close closes hosts to new VMs.
func (c HostClient) Close(ctx context.Context, patterns []string, reason string) ([]Host, error) {
	return c.verb(ctx, "close", patterns, Reason{reason})
}

// Drain empties hosts.
func (c HostClient) Drain(ctx context.Context, patterns []string, r DrainRequest) ([]Host, error) {
	return c.verb(ctx, "drain", patterns, r)
}

// Label changes labels of hosts.
func (c HostClient) Label(ctx context.Context, patterns []string, u HostUpdate) ([]Host, error) {
	return c.verb(ctx, "label", patterns, u)
}

// Fence reports that nothing of a host runs any more: an operator vouches for it.
func (c HostClient) Fence(ctx context.Context, ref, reason string) (Host, error) {
	return call[Host](ctx, c.client, request{method: "POST", path: "/v1/hosts/" + url.PathEscape(ref) + "/fence",
		body: Reason{reason}})
}

// EvictVMs has a host delete VMs that the server does not know; see Host.Orphans.
func (c HostClient) EvictVMs(ctx context.Context, ref string, vms []string) (Host, error) {
	return call[Host](ctx, c.client, request{method: "POST", path: "/v1/hosts/" + url.PathEscape(ref) + "/evict",
		body: Eviction{vms}})
}

// Forget takes a host out of the fleet; it must have no VMs.
func (c HostClient) Forget(ctx context.Context, ref string) error {
	_, err := call[Host](ctx, c.client, request{method: "DELETE", path: "/v1/hosts/" + url.PathEscape(ref)})
	return err
}

func (c HostClient) verb(ctx context.Context, verb string, patterns []string, body any) ([]Host, error) {
	page, err := call[Page[Host]](ctx, c.client,
		request{method: "POST", path: "/v1/hosts:" + verb, query: url.Values{"host": patterns}, body: body})
	return page.Items, err
}

// JoinTokenClient has the requests about tokens by which hosts join.
type JoinTokenClient struct{ client *Client }

// List returns the join tokens.
func (c JoinTokenClient) List(ctx context.Context) ([]JoinToken, error) {
	tokens, _, err := all[JoinToken](ctx, c.client, "/v1/join-tokens", nil)
	return tokens, err
}

// Create makes one; its secret is told once.
func (c JoinTokenClient) Create(ctx context.Context, r JoinTokenRequest) (JoinToken, error) {
	return call[JoinToken](ctx, c.client, request{method: "POST", path: "/v1/join-tokens", body: r})
}

// Delete takes a join token back; hosts that enrolled with it stay.
func (c JoinTokenClient) Delete(ctx context.Context, id string) error {
	_, err := call[JoinToken](ctx, c.client, request{method: "DELETE", path: "/v1/join-tokens/" + url.PathEscape(id)})
	return err
}

// CellClient has the requests about cells.
type CellClient struct{ client *Client }

// List returns the cells.
func (c CellClient) List(ctx context.Context) ([]Cell, int64, error) {
	return all[Cell](ctx, c.client, "/v1/cells", nil)
}

// Get looks one up.
func (c CellClient) Get(ctx context.Context, name string) (Cell, error) {
	return call[Cell](ctx, c.client, request{method: "GET", path: "/v1/cells/" + url.PathEscape(name)})
}

// Open opens a cell to new VMs, and ends its drain.
func (c CellClient) Open(ctx context.Context, name string) (Cell, error) {
	return c.verb(ctx, name, "open", Reason{})
}

// Close closes a cell to new VMs.
func (c CellClient) Close(ctx context.Context, name, reason string) (Cell, error) {
	return c.verb(ctx, name, "close", Reason{reason})
}

// Drain empties a cell.
func (c CellClient) Drain(ctx context.Context, name string, r DrainRequest) (Cell, error) {
	return c.verb(ctx, name, "drain", r)
}

func (c CellClient) verb(ctx context.Context, name, verb string, body any) (Cell, error) {
	return call[Cell](ctx, c.client, request{method: "POST", path: "/v1/cells/" + url.PathEscape(name) + "/" + verb,
		body: body})
}

// Projects lists the projects that the caller may see.
func (c *Client) Projects(ctx context.Context) ([]Project, error) {
	projects, _, err := all[Project](ctx, c, "/v1/projects", nil)
	return projects, err
}

// Project looks one up.
func (c *Client) Project(ctx context.Context, name string) (Project, error) {
	return call[Project](ctx, c, request{method: "GET", path: "/v1/projects/" + url.PathEscape(name)})
}

// Shapes lists the shapes.
func (c *Client) Shapes(ctx context.Context) ([]Shape, error) {
	shapes, _, err := all[Shape](ctx, c, "/v1/shapes", nil)
	return shapes, err
}

// Networks lists the networks.
func (c *Client) Networks(ctx context.Context) ([]Network, error) {
	networks, _, err := all[Network](ctx, c, "/v1/networks", nil)
	return networks, err
}

// GroupClient has the requests about server groups.
type GroupClient struct{ client *Client }

// List returns the server groups.
func (c GroupClient) List(ctx context.Context) ([]Group, error) {
	groups, _, err := all[Group](ctx, c.client, "/v1/groups", nil)
	return groups, err
}

// Put makes a server group, or changes its rule; with a revision other than 0 only that one.
// Absent makes one only.
func (c GroupClient) Put(ctx context.Context, g Group) (Group, error) {
	return call[Group](ctx, c.client, request{method: "PUT", path: groupPath(g.Project, g.Name), body: struct {
		Affinity string `json:"affinity"`
	}{g.Affinity}, revision: g.Revision})
}

// Delete deletes a server group without members.
func (c GroupClient) Delete(ctx context.Context, project, name string) error {
	_, err := call[Group](ctx, c.client, request{method: "DELETE", path: groupPath(project, name)})
	return err
}

func groupPath(project, name string) string {
	return "/v1/groups/" + url.PathEscape(project) + "/" + url.PathEscape(name)
}

// SecurityGroupClient has the requests about security groups.
type SecurityGroupClient struct{ client *Client }

// List returns the security groups.
func (c SecurityGroupClient) List(ctx context.Context) ([]SecurityGroup, error) {
	groups, _, err := all[SecurityGroup](ctx, c.client, "/v1/security-groups", nil)
	return groups, err
}

// Get looks one up.
func (c SecurityGroupClient) Get(ctx context.Context, project, name string) (SecurityGroup, error) {
	return call[SecurityGroup](ctx, c.client, request{method: "GET", path: securityGroupPath(project, name)})
}

// Put makes a security group, or replaces its rules; with a revision other than 0 only that one's.
// Absent makes one only.
func (c SecurityGroupClient) Put(ctx context.Context, g SecurityGroup) (SecurityGroup, error) {
	return call[SecurityGroup](ctx, c.client, request{method: "PUT", path: securityGroupPath(g.Project, g.Name),
		body: struct {
			Rules []SecurityRule `json:"rules"`
		}{g.Rules}, revision: g.Revision})
}

// Delete deletes a security group that no VM and no rule names.
func (c SecurityGroupClient) Delete(ctx context.Context, project, name string) error {
	_, err := call[SecurityGroup](ctx, c.client, request{method: "DELETE", path: securityGroupPath(project, name)})
	return err
}

func securityGroupPath(project, name string) string {
	return "/v1/security-groups/" + url.PathEscape(project) + "/" + url.PathEscape(name)
}

// Apply brings the fleet as data.
func (c *Client) Apply(ctx context.Context, r ApplyRequest) (Applied, error) {
	return call[Applied](ctx, c, request{method: "POST", path: "/v1/apply", body: r})
}

// Export is the fleet as data, for Apply.
func (c *Client) Export(ctx context.Context) (Farm, error) {
	return call[Farm](ctx, c, request{method: "GET", path: "/v1/export"})
}

// Version returns who the server is.
func (c *Client) Version(ctx context.Context) (Version, error) {
	return call[Version](ctx, c, request{method: "GET", path: "/v1/version"})
}

// Status returns how the fleet is.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return call[Status](ctx, c, request{method: "GET", path: "/v1/status"})
}

// OpenAPI is the server's description of itself, as JSON.
func (c *Client) OpenAPI(ctx context.Context) (json.RawMessage, error) {
	return call[json.RawMessage](ctx, c, request{method: "GET", path: "/v1/openapi.json"})
}
