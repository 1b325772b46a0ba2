package api

import (
	"context"
	"net/url"
)

// PublishTo is whom the site has users let through to ports of their VMs: accounts of the host, or other hosts.
type PublishTo struct {
	Name  string   `json:"name"`
	UIDs  []uint32 `json:"uids,omitempty"`
	Hosts []string `json:"hosts,omitempty"` // their addresses
}

// PublishTo returns who a name of the agent's configuration is.
func (c *Client) PublishTo(ctx context.Context, name string) (PublishTo, error) {
	return call[PublishTo](ctx, c, "GET", "/v1/publish/"+url.PathEscape(name), nil)
}
