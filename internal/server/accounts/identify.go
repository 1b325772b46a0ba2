package accounts

import (
	"context"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// IdentifyUser is who calls on the server's own socket, by the name of an account of this machine. farm.CodeNotKnown:
// it is nobody's, or the user is disabled.
func (s *Accounts) IdentifyUser(ctx context.Context, name string) (farm.Identity, error) {
	var u farm.User
	err := s.actions.Store.View(ctx, func(t *store.Tx) (err error) {
		u, err = t.User(name)
		return err
	})
	if action.Missing(err) || err == nil && u.Disabled {
		return farm.Identity{}, &farm.Error{Kind: farm.Denied, Code: farm.CodeNotKnown,
			Message: "the account " + name + " of this machine is not a user of the server",
			Hint:    "an administrator adds a user of the same name; or use a token"}
	}
	return farm.Identity{User: u.Name, Means: "socket"}, err
}
