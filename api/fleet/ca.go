package fleet

import (
	"context"
	"time"
)

// CA is how the fleet's certificate authorities are: one, and a second one while that replaces it.
type CA struct {
	Authorities []Authority `json:"authorities"` // the newest first
	// the site vouches for the listener: hosts believe that, and not these
	Site  bool     `json:"listener_by_site,omitempty"`
	Waits []CAWait `json:"waits,omitempty"` // who still needs the older one
	// when the older one is retired by itself, if nobody needs it then
	RetiresAt *time.Time `json:"retires_at,omitempty"`
}

// Authority is one of them.
type Authority struct {
	Fingerprint string    `json:"fingerprint"` // SHA-256 of its certificate
	Certificate string    `json:"certificate"` // PEM
	Since       time.Time `json:"since"`
	Until       time.Time `json:"until"`
	Next        bool      `json:"next,omitempty"` // it replaces the other one
	Signs       bool      `json:"signs"`          // hosts' certificates
	Hosts       int       `json:"hosts"`          // whose valid certificates it issued
	Trusting    int       `json:"trusting"`       // hosts that report that they believe it about servers
}

// CAWait is a host or a join token that stops working when the older authority is retired.
type CAWait struct {
	Host  string     `json:"host,omitempty"`
	Token string     `json:"token,omitempty"` // ID
	Why   string     `json:"why"`
	Seen  *time.Time `json:"seen,omitempty"` // of a host
	Away  bool       `json:"away,omitempty"` // not heard of for so long that it is not waited for
}

// Name is the host's, or the token's ID.
func (w CAWait) Name() string {
	if w.Host != "" {
		return w.Host
	}
	return w.Token
}

// RetireRequest names those who are cut off, as CAWait does: hosts by name, join tokens by ID.
type RetireRequest struct {
	Without []string `json:"without,omitempty"`
}

// CAClient has the requests about the fleet's CA.
type CAClient struct{ client *Client }

// Get returns how the fleet's authorities are.
func (c CAClient) Get(ctx context.Context) (CA, error) {
	return call[CA](ctx, c.client, request{method: "GET", path: "/v1/ca"})
}

// Rotate makes the authority that replaces the present one.
func (c CAClient) Rotate(ctx context.Context) (CA, error) {
	return call[CA](ctx, c.client, request{method: "POST", path: "/v1/ca/rotate"})
}

// Retire ends a rotation.
func (c CAClient) Retire(ctx context.Context, r RetireRequest) (CA, error) {
	return call[CA](ctx, c.client, request{method: "POST", path: "/v1/ca/retire", body: r})
}
