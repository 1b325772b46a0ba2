package fleet

import (
	"context"
	"net/url"
	"strconv"
)

// UserClient has the requests about users.
type UserClient struct{ client *Client }

// List returns the users.
func (c UserClient) List(ctx context.Context) ([]User, error) {
	users, _, err := all[User](ctx, c.client, "/v1/users", nil)
	return users, err
}

// Put makes or changes a user.
func (c UserClient) Put(ctx context.Context, u User) (User, error) {
	revision := u.Revision
	u.Revision = 0
	return call[User](ctx, c.client, request{method: "PUT", path: "/v1/users/" + url.PathEscape(u.Name), body: u,
		revision: revision})
}

// Delete deletes a user, with its grants and tokens.
func (c UserClient) Delete(ctx context.Context, name string) error {
	_, err := call[User](ctx, c.client, request{method: "DELETE", path: "/v1/users/" + url.PathEscape(name)})
	return err
}

// GrantClient has the requests about roles of users.
type GrantClient struct{ client *Client }

// List returns the roles of a user; of all users when it is empty.
func (c GrantClient) List(ctx context.Context, user string) ([]Grant, error) {
	query := url.Values{}
	if user != "" {
		query.Set("user", user)
	}
	grants, _, err := all[Grant](ctx, c.client, "/v1/grants", query)
	return grants, err
}

// Put gives a role. Giving it again changes nothing.
func (c GrantClient) Put(ctx context.Context, g Grant) error {
	_, err := call[Grant](ctx, c.client, request{method: "PUT", path: "/v1/grants", body: g})
	return err
}

// Delete takes a role away.
func (c GrantClient) Delete(ctx context.Context, g Grant) error {
	_, err := call[Grant](ctx, c.client, request{method: "DELETE", path: "/v1/grants",
		query: url.Values{"user": {g.User}, "role": {g.Role}, "project": {g.Project}, "cell": {g.Cell}}})
	return err
}

// TokenClient has the requests about tokens of users.
type TokenClient struct{ client *Client }

// List returns the tokens of a user, without their secrets; empty: the caller's.
func (c TokenClient) List(ctx context.Context, user string) ([]Token, error) {
	query := url.Values{}
	if user != "" {
		query.Set("user", user)
	}
	tokens, _, err := all[Token](ctx, c.client, "/v1/tokens", query)
	return tokens, err
}

// Create makes a token; its secret is told once.
func (c TokenClient) Create(ctx context.Context, r TokenRequest) (Token, error) {
	return call[Token](ctx, c.client, request{method: "POST", path: "/v1/tokens", body: r})
}

// Delete takes a token back.
func (c TokenClient) Delete(ctx context.Context, id string) error {
	_, err := call[Token](ctx, c.client, request{method: "DELETE", path: "/v1/tokens/" + url.PathEscape(id)})
	return err
}

// SessionClient has the requests about who is signed in.
type SessionClient struct{ client *Client }

// List returns the sessions of a user; empty: the caller's.
func (c SessionClient) List(ctx context.Context, user string) ([]Session, error) {
	query := url.Values{}
	if user != "" {
		query.Set("user", user)
	}
	sessions, _, err := all[Session](ctx, c.client, "/v1/sessions", query)
	return sessions, err
}

// End ends a session, by its ID.
func (c SessionClient) End(ctx context.Context, id string) error {
	_, err := call[Session](ctx, c.client, request{method: "DELETE", path: "/v1/sessions/" + url.PathEscape(id)})
	return err
}

// Issuers returns the issuers by which people sign in.
func (c *Client) Issuers(ctx context.Context) ([]Issuer, error) {
	page, err := call[Page[Issuer]](ctx, c, request{method: "GET", path: "/v1/auth/issuers"})
	return page.Items, err
}

// Login exchanges an identity token of an issuer for a session.
func (c *Client) Login(ctx context.Context, r LoginRequest) (LoginAnswer, error) {
	return call[LoginAnswer](ctx, c, request{method: "POST", path: "/v1/auth/login", body: r})
}

// Logout ends the session that the client shows.
func (c *Client) Logout(ctx context.Context) error {
	_, err := call[LoginAnswer](ctx, c, request{method: "POST", path: "/v1/auth/logout"})
	return err
}

// ExplainClaims returns what the claims of an issuer would give, and why.
func (c *Client) ExplainClaims(ctx context.Context, r ClaimsRequest) (ClaimsExplanation, error) {
	return call[ClaimsExplanation](ctx, c, request{method: "POST", path: "/v1/auth/explain-claims", body: r})
}

// Whoami returns who the server takes the caller for.
func (c *Client) Whoami(ctx context.Context) (Identity, error) {
	return call[Identity](ctx, c, request{method: "GET", path: "/v1/auth/whoami"})
}

// Explain returns why a user may or may not do something. Action is as "vm.create", target as "project:NAME",
// "cell:NAME" or empty; no user: the caller.
func (c *Client) Explain(ctx context.Context, user, action, target string) (Explanation, error) {
	return call[Explanation](ctx, c, request{method: "GET", path: "/v1/auth/explain",
		query: url.Values{"user": {user}, "action": {action}, "target": {target}}})
}

// Audit lists the newest entries of the audit log: of one project, of one user, before an ID, where these are not zero.
// Limit bounds them.
func (c *Client) Audit(ctx context.Context, project, who string, before int64, limit int) ([]Entry, error) {
	query := url.Values{"project": {project}, "who": {who}, "limit": {strconv.Itoa(limit)}}
	if before != 0 {
		query.Set("before", strconv.FormatInt(before, 10))
	}
	page, err := call[Page[Entry]](ctx, c, request{method: "GET", path: "/v1/audit", query: query})
	return page.Items, err
}
