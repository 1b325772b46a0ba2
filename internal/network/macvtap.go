package network

import (
	"context"
	"fmt"
	"net"
	"slices"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// macvtap is a card of the host that its VMs share: each has an address of its own on the card's network. The
// hypervisor makes the device, which goes with the machine.
type macvtap struct{ plain }

func (macvtap) Check(n farm.Network, s Settings) error {
	card := n.Of()
	if !slices.Contains(s.Host.Macvtap, card) {
		return notCarried(n, fmt.Sprintf("[network] macvtap of its agent.toml does not name %s", card),
			"name the card there")
	}
	if _, err := net.InterfaceByName(card); err != nil {
		return notCarried(n, "it has no card "+card, "correct [network] macvtap of its agent.toml")
	}
	return nil
}

func (m macvtap) Prepare(_ context.Context, vm VM, s Settings) (hyper.Card, error) {
	if err := m.Check(vm.Network, s); err != nil {
		return hyper.Card{}, err
	}
	return hyper.Card{Type: hyper.MacvtapCard, Source: vm.Network.Of(), MAC: vm.MAC}, nil
}
