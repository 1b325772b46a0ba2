package agent

import (
	"math"

	"github.com/grange-project/grange/internal/agent/account"
	"github.com/grange-project/grange/internal/agent/admission"
)

// together is the user that all users count for who have no name, and may be one account's. No user has this ID.
const together = math.MaxUint32

// accounts returns where an agent looks accounts up.
func accounts(a *Agent) account.Service {
	return account.Service{Names: a.names, IDs: &a.subids, Ask: a.admission.Ask}
}

func (c Caller) peer() account.Peer {
	return account.Peer{UID: c.UID, GID: c.GID, Groups: c.Groups, Owner: c.Owner}
}

// User returns the account that a caller counts for in limits, shares, records of usage and policy; see account.Peer.
func (c Caller) User() uint32 { return c.peer().User() }

// charged returns the user whose limits and shares count for a caller.
func (c Caller) charged() uint32 {
	if c.Nameless {
		return together
	}
	return c.User()
}

// owns reports whether a caller may act on what another one started: as the same user, or as the account whose
// subordinate ID that one is. An account's subordinate IDs have no rights on what the account itself started.
func (c Caller) owns(other Caller) bool { return c.UID == other.UID || c.UID == other.User() }

// callerIn returns who made the connection of a request.
func callerIn(a *Agent, conn *admission.Connection) (Caller, error) {
	c, err := callerOf(conn)
	if err != nil || c.admin() {
		return c, err
	}
	return c.withOwner(a)
}

// withOwner adds the account whose subordinate ID a caller's user is.
func (c Caller) withOwner(a *Agent) (Caller, error) {
	owner, err := accounts(a).Owner(a.ctx, c.User())
	if owner != 0 {
		c.Owner = owner
	}
	return c, err
}

// share returns the user whose share of the agent counts for a caller, before its request is read.
func (c Caller) share(a *Agent) uint32 {
	c.Nameless = !c.admin() && accounts(a).OneOfMany(a.ctx, c.User())
	return c.charged()
}
