package agent

import (
	"github.com/grange-project/grange/internal/agent/account"
	"github.com/grange-project/grange/internal/guest"
)

// callerNames are the names of a caller, as far as the host's name service has any.
type callerNames struct{ account.Names }

// namesOf looks the caller up. An error says that nobody knows, not that the user has no name.
func (a requests) namesOf(c Caller) (callerNames, error) {
	found, err := accounts(a.Agent).LookUp(a.ctx, c.peer())
	return callerNames{found}, err
}

func (n callerNames) guestUser(_ Caller, home string) guest.User { return n.Guest(home) }
