package farmlab

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// network is a hub, where servers are, and one network namespace for each host, all on one Ethernet. Nothing of it is
// reached from outside, or reaches outside.
type network struct {
	name  string
	hosts int
}

// Network is the part of a farm file that tells a server of the one that the hosts are on: "lan", whose own addresses
// are not leased.
const Network = `
[networks.lan]
bridge = "br0"
addresses = ["10.77.1.1-10.77.1.250/16"]
`

// Addresses of the farm's network.
const (
	hubAddress = "10.77.0.1"
	bridge     = "br0" // in every namespace
)

func newNetwork(name string, hosts int) *network { return &network{name: name, hosts: hosts} }

func (n *network) hub() string            { return n.name }
func (n *network) host(number int) string { return fmt.Sprintf("%s-%d", n.name, number) }

// path of a namespace.
func path(namespace string) string { return "/run/netns/" + namespace }

func (n *network) up(ctx context.Context) error {
	if err := steps(ctx, n.hub(), "ip netns add NS", "ip -n NS link set lo up", "ip -n NS link add br0 type bridge",
		"ip -n NS addr add "+hubAddress+"/16 dev br0", "ip -n NS link set br0 up"); err != nil {
		return err
	}
	for i := range n.hosts {
		cable := fmt.Sprintf("host%d", i)
		if err := steps(ctx, n.host(i), "ip netns add NS", "ip -n NS link set lo up",
			"ip -n NS link add br0 type bridge", fmt.Sprintf("ip -n NS addr add 10.77.0.%d/16 dev br0", 10+i),
			"ip -n NS link set br0 up", fmt.Sprintf("ip -n %s link add %s type veth peer name up0 netns NS", n.hub(),
				cable), fmt.Sprintf("ip -n %s link set %s master br0 up", n.hub(), cable),
			"ip -n NS link set up0 master br0 up"); err != nil {
			return err
		}
	}
	return nil
}

// steps runs commands, with NS for the namespace.
func steps(ctx context.Context, namespace string, commands ...string) error {
	for _, command := range commands {
		argv := strings.Fields(strings.ReplaceAll(command, "NS", namespace))
		if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out)
		}
	}
	return nil
}

// down removes the namespaces, with all that is in them.
func (n *network) down() error {
	var errs []error
	for i := range n.hosts {
		errs = append(errs, steps(context.Background(), n.host(i), "ip netns del NS"))
	}
	return errors.Join(append(errs, steps(context.Background(), n.hub(), "ip netns del NS"))...)
}
