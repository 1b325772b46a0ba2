package network

import "context"

// BindBy has functions of cards be bound to drivers by somebody else than the kernel.
func BindBy(bind func(ctx context.Context, address, driver string) error) {
	Kinds["sriov"] = sriov{bind: bind}
}
