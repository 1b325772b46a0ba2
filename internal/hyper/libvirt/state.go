package libvirt

import (
	"context"
	"fmt"

	rpc "github.com/digitalocean/go-libvirt"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// State asks libvirt what it knows: it does not ask QEMU, which may hang.
func (l *Libvirt) State(ctx context.Context, id string) (hyper.State, error) {
	uuid, err := parseUUID(id)
	if err != nil {
		return hyper.Gone, nil
	}
	state, err := call(ctx, l.daemon, func(s *session) (int32, error) {
		state, _, err := s.DomainGetState(rpc.Domain{Name: "grange", UUID: uuid, ID: -1}, 0)
		return state, err
	})
	if kind(err) == farm.NotFound {
		return hyper.Gone, nil
	}
	if err != nil {
		return "", fmt.Errorf("state of machine %s: %w", id, err)
	}
	return stateOf(state), nil
}

// stateOf is libvirt's word for a state in ours. What is none of these runs no instruction for now.
func stateOf(state int32) hyper.State {
	switch rpc.DomainState(state) {
	case rpc.DomainRunning, rpc.DomainBlocked, rpc.DomainShutdown:
		return hyper.Running
	case rpc.DomainShutoff, rpc.DomainCrashed:
		return hyper.Gone
	}
	return hyper.Paused
}
