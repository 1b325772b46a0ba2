package server

import (
	"context"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
)

// Users are all users; who may not see them gets itself alone.
func (s *Server) Users(ctx context.Context, who farm.Identity) ([]farm.User, error) {
	return nil, errLater
}

// PutUser makes or changes a user.
func (s *Server) PutUser(ctx context.Context, who farm.Identity, u farm.User, ifRevision int64) (farm.User, error) {
	return farm.User{}, errLater
}

// DeleteUser deletes a user with its grants and tokens. Its VMs stay.
func (s *Server) DeleteUser(ctx context.Context, who farm.Identity, name string) error {
	return errLater
}

// Grants are the roles of a user; "": of all.
func (s *Server) Grants(ctx context.Context, who farm.Identity, user string) ([]farm.Grant, error) {
	return nil, errLater
}

// PutGrant gives a role. Giving it again changes nothing.
func (s *Server) PutGrant(ctx context.Context, who farm.Identity, g farm.Grant) error {
	return errLater
}

// DeleteGrant takes a role away.
func (s *Server) DeleteGrant(ctx context.Context, who farm.Identity, g farm.Grant) error {
	return errLater
}

// TokenOrder asks for a token.
type TokenOrder struct {
	User     string // "": the caller
	Note     string
	Role     farm.Role // at most; "": the user's own
	Projects []string  // only these; none: all of the user's
	Expires  time.Time // zero: never
}

// CreateToken makes a token. Its text, as "grt_ID_SECRET", is told here and kept nowhere.
func (s *Server) CreateToken(ctx context.Context, who farm.Identity, o TokenOrder) (token farm.Token, text string, err error) {
	return farm.Token{}, "", errLater
}

// Tokens are the tokens of a user, without what would let anybody use them; "": the caller's.
func (s *Server) Tokens(ctx context.Context, who farm.Identity, user string) ([]farm.Token, error) {
	return nil, errLater
}

// DeleteToken takes a token back, by its ID.
func (s *Server) DeleteToken(ctx context.Context, who farm.Identity, id string) error {
	return errLater
}

// IdentifyToken is who calls with the text of a token. farm.CodeNotKnown: it is none, has expired, was taken back, or its user is disabled; which of
// them is in the error's cause, for the log.
func (s *Server) IdentifyToken(ctx context.Context, text string) (farm.Identity, error) {
	return farm.Identity{}, errLater
}

// IdentifySubject is who calls with a client certificate of this subject, in RFC 2253's order. farm.CodeNotKnown: it is nobody's.
func (s *Server) IdentifySubject(ctx context.Context, subject string) (farm.Identity, error) {
	return farm.Identity{}, errLater
}

// Whoami are the caller's roles.
func (s *Server) Whoami(ctx context.Context, who farm.Identity) ([]farm.Grant, error) {
	return nil, errLater
}

// Explain tells why a user ("": the caller) may or may not do something. The target is "project:NAME", "cell:NAME", "host:NAME", "vm:PROJECT/NAME",
// "user:NAME" or "".
func (s *Server) Explain(ctx context.Context, who farm.Identity, user string, action policy.Action, target string) (policy.Access, error) {
	return policy.Access{}, errLater
}
