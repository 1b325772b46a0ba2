package fleet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
)

// VMFilter chooses VMs; zero fields choose all.
type VMFilter struct {
	Project, Host, Cell, Owner, Group string
	State                             string
	Name                              string // a pattern, as "web-*"
	Tags                              map[string]string
}

// Query is the filter as the API takes it.
func (f VMFilter) Query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{"project": f.Project, "host": f.Host, "cell": f.Cell, "owner": f.Owner,
		"group": f.Group, "state": f.State, "name": f.Name} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for name, value := range f.Tags {
		q.Add("tag", name+"="+value)
	}
	return q
}

// vmPath is the path of a VM, by its ID or by PROJECT/NAME.
func vmPath(ref string) string { return "/v1/vms/" + url.PathEscape(ref) }

// VMClient has the requests about cloud VMs.
type VMClient struct{ client *Client }

// Create makes VMs; with the same key and request again it answers what it answered first, and makes nothing.
// api.NewID makes keys.
func (c VMClient) Create(ctx context.Context, key string, r VMRequest) ([]VM, error) {
	page, err := call[Page[VM]](ctx, c.client, request{method: "POST", path: "/v1/vms", body: r, key: key})
	return page.Items, err
}

// List returns the VMs that the caller may see, by project and name, and the revision to watch from.
func (c VMClient) List(ctx context.Context, f VMFilter) ([]VM, int64, error) {
	return all[VM](ctx, c.client, "/v1/vms", f.Query())
}

// Revision is the store's, now: a watch from it misses nothing of what is read after it.
func (c *Client) Revision(ctx context.Context) (int64, error) {
	// no name begins so: the page is empty, and no VM is read for it
	behindAll := url.Values{"limit": {"1"}, "after": {"~/~"}}
	page, err := call[Page[VM]](ctx, c, request{method: "GET", path: "/v1/vms", query: behindAll})
	return page.Revision, err
}

// Get looks one up, by ID or PROJECT/NAME.
func (c VMClient) Get(ctx context.Context, ref string) (VM, error) {
	return call[VM](ctx, c.client, request{method: "GET", path: vmPath(ref)})
}

// Update changes a VM; with a revision other than 0 only that one.
func (c VMClient) Update(ctx context.Context, ref string, u VMUpdate, revision int64) (VM, error) {
	return call[VM](ctx, c.client, request{method: "PATCH", path: vmPath(ref), body: u, revision: revision})
}

// Delete deletes a VM, its disks and its lease: that it is wanted deleted is durable when this returns.
func (c VMClient) Delete(ctx context.Context, ref string) (VM, error) {
	return call[VM](ctx, c.client, request{method: "DELETE", path: vmPath(ref)})
}

// Start starts a VM that is stopped.
func (c VMClient) Start(ctx context.Context, ref string) (VM, error) {
	return c.verb(ctx, ref, "start", nil)
}

// Stop stops a VM; its disks and its place stay.
func (c VMClient) Stop(ctx context.Context, ref string) (VM, error) {
	return c.verb(ctx, ref, "stop", nil)
}

// Restart restarts a VM.
func (c VMClient) Restart(ctx context.Context, ref string) (VM, error) {
	return c.verb(ctx, ref, "restart", nil)
}

// Resize gives a VM another size.
func (c VMClient) Resize(ctx context.Context, ref string, r VMResize) (VM, error) {
	return c.verb(ctx, ref, "resize", r)
}

// Rebuild makes a VM anew, with fresh disks.
func (c VMClient) Rebuild(ctx context.Context, ref string, r VMRebuild) (VM, error) {
	return c.verb(ctx, ref, "rebuild", r)
}

// Move has a VM move to another host while it runs. That it is ordered is durable when this returns; LastMove tells
// what becomes of it.
func (c VMClient) Move(ctx context.Context, ref string, m VMMove) (Move, error) {
	return call[Move](ctx, c.client, request{method: "POST", path: vmPath(ref) + "/move", body: m})
}

// LastMove is the last move of a VM.
func (c VMClient) LastMove(ctx context.Context, ref string) (Move, error) {
	return call[Move](ctx, c.client, request{method: "GET", path: vmPath(ref) + "/move"})
}

// CancelMove takes a VM's move back, unless the VM has gone by then.
func (c VMClient) CancelMove(ctx context.Context, ref string) (Move, error) {
	return call[Move](ctx, c.client, request{method: "DELETE", path: vmPath(ref) + "/move"})
}

func (c VMClient) verb(ctx context.Context, ref, verb string, body any) (VM, error) {
	return call[VM](ctx, c.client, request{method: "POST", path: vmPath(ref) + "/" + verb, body: body})
}

// UpgradeStream is the protocol of RouteStream and of VM streams: bytes both ways.
const UpgradeStream = "grange-stream"

// Stream opens a stream to a VM: StreamConsole, or StreamTCP to a port of its loopback or address.
func (c VMClient) Stream(ctx context.Context, ref, kind string, port int) (io.ReadWriteCloser, error) {
	query := url.Values{"kind": {kind}}
	if port != 0 {
		query.Set("port", strconv.Itoa(port))
	}
	response, err := c.client.do(ctx, request{method: "GET", path: vmPath(ref) + "/stream", query: query,
		upgrade: UpgradeStream})
	if err != nil {
		return nil, err
	}
	stream, ok := response.Body.(io.ReadWriteCloser)
	if response.StatusCode != http.StatusSwitchingProtocols || !ok {
		response.Body.Close()
		return nil, fmt.Errorf("the server answered %s instead of a stream", response.Status)
	}
	return stream, nil
}

// Why explains where a VM could be, and why not elsewhere.
func (c VMClient) Why(ctx context.Context, ref string) (Why, error) {
	return call[Why](ctx, c.client, request{method: "GET", path: vmPath(ref) + "/why"})
}

// Why explains where such a VM could be, without making one.
func (c *Client) Why(ctx context.Context, r VMRequest) (Why, error) {
	return call[Why](ctx, c, request{method: "POST", path: "/v1/why", body: r})
}
