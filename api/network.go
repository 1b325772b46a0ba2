package api

import (
	"context"
	"net/url"
)

// Network is a network of the site, on which VMs of a host's jobs and workers have leases.
type Network struct {
	Name     string   `json:"name"`
	Network  string   `json:"network"` // what it is on the host, as "vlan:120"
	Domain   string   `json:"domain,omitempty"`
	Gateways []string `json:"gateways,omitempty"`
	DNS      []string `json:"dns,omitempty"`
	Isolate  bool     `json:"isolate,omitempty"`
	Closed   bool     `json:"closed,omitempty"`
	Total    int      `json:"total"` // leases, those that are removed included
	Taken    int      `json:"taken"`
	Leases   []Lease  `json:"leases,omitempty"` // of one network alone: a list of networks leaves them out
	Warnings []string `json:"warnings,omitempty"`
}

// Lease is one entry of the site's registry.
type Lease struct {
	Network   string   `json:"network,omitempty"` // in the view of a VM
	Name      string   `json:"name"`
	MAC       string   `json:"mac"`
	Addresses []string `json:"addresses,omitempty"` // with the length of the prefix; none: by DHCP
	Taken     bool     `json:"taken,omitempty"`
	VM        string   `json:"vm,omitempty"`      // that has it, where the caller may see it
	Removed   bool     `json:"removed,omitempty"` // not in the list any more: it goes with its VM
}

// Networks lists the networks of the site that the host has.
func (c *Client) Networks(ctx context.Context) ([]Network, error) {
	return call[[]Network](ctx, c, "GET", "/v1/networks", nil)
}

// Network returns one, with its leases.
func (c *Client) Network(ctx context.Context, name string) (Network, error) {
	return call[Network](ctx, c, "GET", "/v1/networks/"+url.PathEscape(name), nil)
}
