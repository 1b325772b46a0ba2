package agent

import (
	"context"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/agent/machine"
)

// The agent is everybody's, and its connections, memory and file descriptors are few. admission gives each user a share
// that is more than a host full of their jobs needs, so that nobody shuts others out. The administrator's share is all.
type admission struct {
	mu    sync.Mutex
	open  map[uint32]int           // connections by user
	large map[uint32]chan struct{} // held, by user, while a large body is read
	deaf  time.Time                // when a connection could not be taken last
}

// A job has a connection for its events and one for its heartbeats, and now and then a third. Small hosts have few
// jobs, and people with many shells.
const (
	connectionsOfJob = 3
	leastConnections = 256
	smallBody        = 1 << 20
)

func peerCred(conn *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var inner error
	if err = raw.Control(func(fd uintptr) {
		cred,
			inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err == nil {
		err = inner
	}
	return cred, err
}

// enter counts a connection; a limit of 0 is none.
func (d *admission) enter(uid uint32, limit int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if limit > 0 && d.open[uid] >= limit {
		return false
	}
	if d.open == nil {
		d.open = map[uint32]int{}
	}
	d.open[uid]++
	return true
}

func (d *admission) leave(uid uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open[uid]--; d.open[uid] == 0 {
		delete(d.open, uid)
	}
}

func (d *admission) note(now time.Time) {
	d.mu.Lock()
	d.deaf = now
	d.mu.Unlock()
}

// reachable reports whether callers could reach us for as long as they may be silent: an agent without file descriptors
// must not pause their VMs.
func (d *admission) reachable() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	// in that second net/http tries to accept again
	return d.deaf.IsZero() || time.Since(d.deaf) > machine.HeartbeatTimeout+time.Second
}

// carry waits until no other large body of the user is being read.
func (d *admission) carry(ctx context.Context, uid uint32) (done func(), err error) {
	d.mu.Lock()
	if d.large == nil {
		d.large = map[uint32]chan struct{}{}
	}
	turn := d.large[uid]
	if turn == nil {
		turn = make(chan struct{}, 1)
		d.large[uid] = turn
	}
	d.mu.Unlock()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
