package machine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/vmuid"
)

// Each VM's QEMU runs as a user that no other VM's does, so that a guest that breaks out of one has nothing of the
// others. Which are in use is never kept: the host tells, by its processes and the owners of disks, and so an agent
// that was restarted, or that died between two steps, gives none to a second VM. In memory is only who was given one
// and has neither yet.
type users struct {
	checked chan struct{} // closed when it is known whether the IDs are ours
	wrong   error         // why they are not; read it behind checked

	mu    sync.Mutex
	given map[uint32]string // by ID: the name of the machine
	// why the last machine for which no batch system has a group runs as QEMU's own user; "": it does not
	shared string
	logged string // the last reason that was logged
}

// User is whom a machine's QEMU runs as.
type User struct {
	UID, GID   int    // whom its disks are given to
	Own, Group uint32 // for the hypervisor: 0 is its own choice
}

func (u *users) init() { u.checked, u.given = make(chan struct{}), map[uint32]string{} }

// CheckUsers finds out whether the IDs of VMs are theirs alone. VMs wait for it: the name service answers, or is known
// to be away, within seconds.
func (h *Host) CheckUsers(ctx context.Context) {
	defer close(h.users.checked)
	uids := h.Config().VMUIDs
	if h.users.wrong = vmuid.Check(os.DirFS("/"), uids); h.users.wrong == nil {
		h.users.wrong = vmuid.Ask(ctx, h.Names, uids)
	}
	switch {
	case h.users.wrong != nil:
		h.Log.Error("no vm starts", "error", h.users.wrong)
	case uids.None():
		h.Log.Warn("all vms run as QEMU's own user, for vm_uids is not set: a guest that breaks out has what the others " +
			"have")
	}
}

// TakeUser gives a machine its user, until returnUser. Where the host does not let a user without an account run QEMU,
// that is QEMU's own, whom machines share. Errors: CodeNoVMUID, farm.CodeUIDsTaken.
func (h *Host) TakeUser(ctx context.Context, machine string, tracked uint32) (User, error) {
	u, uids := &h.users, h.Config().VMUIDs
	shared := User{UID: h.UID, GID: h.GID, Group: tracked}
	if uids.None() {
		return shared, nil
	}
	select {
	case <-u.checked:
	case <-ctx.Done():
		return User{}, context.Cause(ctx)
	}
	if u.wrong != nil {
		return User{}, u.wrong
	}
	uid, err := h.freeUser(uids, machine)
	if err != nil {
		return User{}, err
	}
	gid, why, err := h.Hyper.OwnGroup(ctx, uid, tracked)
	if err != nil || why != "" {
		h.ReturnUser(machine)
	}
	if err != nil {
		return User{}, err
	}
	h.noteShared(machine, why, tracked)
	if why != "" {
		return shared, nil
	}
	return User{UID: int(uid), GID: int(gid), Own: uid, Group: gid}, nil
}

// freeUser finds an ID that nobody has, and notes for whom it is.
func (h *Host) freeUser(uids farm.UIDs, machine string) (uint32, error) {
	h.users.mu.Lock()
	defer h.users.mu.Unlock()
	running, err := vmuid.Running(os.DirFS("/proc"), uids)
	if err != nil {
		return 0, fmt.Errorf("whose processes run here: %w", err)
	}
	owners, err := h.owners()
	if err != nil {
		return 0, err
	}
	uid, ok := uids.Free(rand.Uint32(), func(uid uint32) bool {
		return running[uid] || owners[uid] ||
			h.users.given[uid] != ""
	})
	if !ok {
		return 0, &farm.Error{Kind: farm.NoCapacity, Code: CodeNoVMUID,
			Message: fmt.Sprintf("all user IDs of VMs on this host are in use (%v)", uids),
			Hint:    "wait until other VMs have ended, or have a wider range as vm_uids in the agent's configuration"}
	}
	h.users.given[uid] = machine
	return uid, nil
}

// noteShared keeps, and logs when it is new, why a machine runs as QEMU's own user; "": it does not.
func (h *Host) noteShared(machine, why string, tracked uint32) {
	u := &h.users
	u.mu.Lock()
	defer u.mu.Unlock()
	if why != "" && why != u.logged {
		u.logged = why
		h.Log.Warn("vms run as QEMU's own user, all as the same", "first", machine, "reason", why)
	}
	if tracked == 0 {
		u.shared = why
	}
}

// ReturnUser takes a machine's user back: it has ended, and its files are gone or not the user's any more. What is left
// of either keeps the ID in use.
func (h *Host) ReturnUser(machine string) {
	h.users.mu.Lock()
	defer h.users.mu.Unlock()
	for uid, name := range h.users.given {
		if name == machine {
			delete(h.users.given, uid)
		}
	}
}

// UsersWarning says for people why VMs are not kept from each other by their users; "": they are.
func (h *Host) UsersWarning() string {
	u := &h.users
	if h.Config().VMUIDs.None() {
		return "all VMs run as QEMU's own user: vm_uids is not set in the agent's configuration"
	}
	select {
	case <-u.checked:
	default:
		return ""
	}
	if u.wrong != nil {
		return "no VM starts: " + u.wrong.Error()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.shared != "" {
		return "all VMs run as QEMU's own user: " + u.shared
	}
	return ""
}
