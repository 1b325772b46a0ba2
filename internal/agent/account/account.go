// Package account says whose the processes are that call an agent: which account each counts for, and what the name
// service calls it and its groups.
package account

import (
	"context"
	"errors"

	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/subid"
)

// Peer is a process that calls, as the kernel reports it.
type Peer struct {
	UID, GID uint32
	Groups   []uint32
	// the account that made the process's user namespace, or whose subordinate ID UID is; 0: there is none
	Owner uint32
}

// User returns the account that a process counts for.
func (p Peer) User() uint32 {
	if p.Owner != 0 {
		return p.Owner
	}
	return p.UID
}

func (p Peer) allGroups() []uint32 { return append([]uint32{p.GID}, p.Groups...) }

// firstSubordinate is where subordinate IDs begin by default: SUB_UID_MIN of login.defs(5).
const firstSubordinate = 100_000

// Service looks accounts up.
type Service struct {
	Names *names.Service
	IDs   *subid.Files
	// Ask waits until nobody else asks about a user, until done is called.
	Ask func(ctx context.Context, uid uint32) (done func(), err error)
}

// Owner returns the account that has a user ID as a subordinate one; 0: the ID is an account's own, or nobody knows
// whose. An ID that the name service knows is an account's own, whatever range it is in. Its error has CodeNoNames.
func (s Service) Owner(ctx context.Context, uid uint32) (uint32, error) {
	r, ok := s.IDs.User(uid)
	if !ok || rootsOwn(r) {
		return 0, nil
	}
	if _, err := s.Names.User(ctx, uid); !errors.Is(err, names.ErrUnknown) {
		return 0, err
	}
	if owner, ok := r.Number(); ok {
		return owner, nil
	}
	u, err := s.Names.Named(ctx, r.Owner)
	if errors.Is(err, names.ErrUnknown) {
		return 0, nil
	}
	return u.UID, err
}

// Party returns whom a connection counts for before its request is read: it does not ask the name service. All IDs of a
// range are one party, those of root's containers as well. owner is as Peer has it.
func (s Service) Party(uid, owner uint32) uint32 {
	if owner != 0 {
		uid = owner
	}
	r, ok := s.IDs.User(uid)
	if !ok || s.Names.Knows(uid) {
		return uid
	}
	if n, ok := r.Number(); ok && n != 0 {
		return n
	}
	return r.First
}

// OneOfMany reports whether a user has no name, and may be one of many that an account makes: by a list of subordinate
// IDs that is not the host's own, that was changed since, or that names an account which is not known. A name service
// that does not answer knows nobody.
func (s Service) OneOfMany(ctx context.Context, uid uint32) bool {
	if !s.canBeMany(uid) {
		return false
	}
	_, err := s.Names.User(ctx, uid)
	return err != nil
}

func (s Service) canBeMany(uid uint32) bool { return uid >= firstSubordinate || s.subordinate(uid) }

// subordinate reports whether a user ID without a name can be an account's subordinate one. Where IDs are not only in
// the host's files, each high one can.
func (s Service) subordinate(uid uint32) bool {
	r, ok := s.IDs.User(uid)
	return ok && !rootsOwn(r) || !ok && uid >= firstSubordinate && s.IDs.Elsewhere()
}

// subordinateGroup reports whether a group ID is an account's subordinate one. Such a group has no name, and nobody is
// in it.
func (s Service) subordinateGroup(gid uint32) bool {
	r, ok := s.IDs.Group(gid)
	return ok && !rootsOwn(r)
}

// rootsOwn reports whether root's containers have the IDs of a range.
func rootsOwn(r subid.Range) bool { return r.Owner == "root" || r.Owner == "0" }
