package network

import (
	"context"
	"sync"

	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/network/usernet"
)

// user is the user-mode network inside QEMU, which has to be kept from the host's own addresses.
type user struct {
	plain
	mu sync.Mutex // held by Restore and Release: nothing is restored for a VM that is released meanwhile
}

func (*user) Prepare(context.Context, VM, Settings) (hyper.Card, error) {
	return hyper.Card{Type: hyper.UserCard}, nil
}

func (*user) Fence(ctx context.Context, vm VM, s Settings) error {
	return usernet.Fence(ctx, vm.PID, s.VMUIDs, s.Reach, vm.Name)
}

// Restore loads the rules once for each network namespace and range of users.
func (u *user) Restore(ctx context.Context, vms []VM, s Settings, failed func(VM, error)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	places := map[usernet.Place][]VM{}
	for _, vm := range vms {
		place, err := usernet.PlaceOf(vm.PID)
		if err != nil { // it ends just now
			continue
		}
		if s.VMUIDs.Has(place.UID) {
			place.UID = s.VMUIDs.First // fenced with all others of the range
		}
		places[place] = append(places[place], vm)
	}
	for _, vms := range places {
		var names []string
		for _, vm := range vms {
			names = append(names, vm.Name)
		}
		if err := usernet.Fence(ctx, vms[0].PID, s.VMUIDs, s.Reach, names...); err != nil {
			failed(vms[0], err)
		}
	}
}

func (u *user) Release(ctx context.Context, name string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return usernet.Release(ctx, name)
}
