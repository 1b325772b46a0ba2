package server

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pki"
	"github.com/grange-project/grange/internal/policy"
)

// Codes of join tokens and of enrolment; see docs/errors.md.
const (
	CodeJoinRefused farm.Code = "join-refused"
	CodeJoinOrder   farm.Code = "bad-join-order"
	CodeHostExists  farm.Code = "host-enrolled"
	CodeClonedHost  farm.Code = "machine-id-cloned"
	CodeClockOff    farm.Code = "clock-off"
)

const (
	joinValid    = time.Hour
	joinValidMax = 30 * 24 * time.Hour
	joinCountMax = 100_000
)

// trust is whom hosts believe about servers: the first is the one that join tokens name.
func (s *Server) trust(ctx context.Context) ([]*x509.Certificate, error) {
	if len(s.listenerCAs) > 0 {
		return s.listenerCAs, nil
	}
	cas, err := s.Authorities(ctx)
	if err != nil {
		return nil, err
	}
	return cas.Certificates(), nil
}

// JoinOrder asks for a join token.
type JoinOrder struct {
	Cell   string
	Name   string // of the host; "": any
	Labels map[string]string
	Valid  time.Duration // 0: an hour
	Count  int           // hosts that may enrol with it; 0: one

	Once string // idempotency key, as CreateVM has it
}

func (o JoinOrder) check() error {
	switch {
	case o.Name != "" && !validHost(o.Name):
		return badJoin("%q cannot be a host's name", o.Name)
	case o.Valid < 0 || o.Valid > joinValidMax:
		return badJoin("a join token is valid for 30 days at most, not for %v", o.Valid)
	case o.Count < 0 || o.Count > joinCountMax:
		return badJoin("a join token is for %d hosts at most, not for %d", joinCountMax, o.Count)
	case o.Count > 1 && o.Name != "":
		return badJoin("a join token is for one host of a name, or for several of any")
	}
	return nil
}

func badJoin(format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: CodeJoinOrder, Message: fmt.Sprintf(format, args...),
		Hint: "see `grange host token create --help`"}
}

// CreateJoinToken makes a join token. The text is told once: a request that is repeated is answered without it.
func (s *Server) CreateJoinToken(ctx context.Context, who farm.Identity, o JoinOrder) (k farm.JoinToken, text string,
	err error) {
	if err := o.check(); err != nil {
		return farm.JoinToken{}, "", err
	}
	trust, err := s.trust(ctx)
	if err != nil {
		return farm.JoinToken{}, "", err
	}
	token, key := pki.NewJoinToken(trust[0]), o.Once
	o.Once = ""
	_, err = s.change(ctx, who, policy.JoinHost, func(c *call) error {
		if _, err := c.cell(o.Cell); err != nil {
			return err
		}
		if err := c.mayReplace(o); err != nil {
			return err
		}
		ids, again, err := c.once(key, o, func() ([]string, error) { return c.makeJoinToken(token, o) })
		if err != nil {
			return err
		}
		if text = token.String(); again {
			text = ""
		}
		if k, err = c.JoinToken(ids[0]); missing(err) {
			return noJoinToken(ids[0]) // taken back since
		}
		return err
	})
	if err != nil {
		return farm.JoinToken{}, "", err
	}
	return k, text, nil
}

// mayReplace refuses a token for a host that is in another cell, where the caller may not let hosts join. It is held
// against that once more when it is used.
func (c *call) mayReplace(o JoinOrder) error {
	if o.Name == "" {
		return nil
	}
	old, err := c.HostNamed(o.Name)
	if missing(err) || err == nil && old.Cell == o.Cell {
		return nil
	}
	if err != nil {
		return err
	}
	token := c.target
	if err := c.may(hostTarget(old)); err != nil {
		return err
	}
	c.target = token
	return nil
}

func (c *call) makeJoinToken(token pki.JoinToken, o JoinOrder) ([]string, error) {
	k := farm.JoinToken{ID: token.ID, Hash: token.Hash(), Cell: o.Cell, Name: o.Name, Labels: o.Labels,
		By: cmp.Or(c.who.User, rootName), Expires: c.now.Add(cmp.Or(o.Valid, joinValid)), Count: max(o.Count, 1),
		CA: token.Fingerprint}
	if err := c.PutJoinToken(k); err != nil {
		return nil, err
	}
	return []string{k.ID}, c.did("join token " + k.ID)
}

// DeleteJoinToken takes a join token back, by its ID: no more hosts enrol with it. Hosts that did stay.
func (s *Server) DeleteJoinToken(ctx context.Context, who farm.Identity, id string) error {
	_, err := s.change(ctx, who, policy.JoinHost, func(c *call) error {
		c.target = policy.Target{Name: farm.Printable("join token " + id)}
		k, err := c.JoinToken(id)
		if missing(err) || err == nil && c.may(cellTarget(k.Cell)) != nil {
			return noJoinToken(id)
		}
		if err != nil {
			return err
		}
		if err := c.Tx.DeleteJoinToken(id); err != nil {
			return err
		}
		return c.did("join token " + id + " taken back")
	})
	return err
}

func noJoinToken(id string) error {
	return &farm.Error{Kind: farm.NotFound, Code: CodeNoToken,
		Message: fmt.Sprintf("no join token %.80q of yours", id),
		Hint:    "`grange host token list` shows those; name one by its ID"}
}

// JoinTokens are those that were made, and that the caller could have made.
func (s *Server) JoinTokens(ctx context.Context, who farm.Identity) ([]farm.JoinToken, error) {
	var tokens []farm.JoinToken
	err := s.look(ctx, who, policy.JoinHost, func(c *call) error {
		all, err := c.Tx.JoinTokens()
		if err != nil {
			return err
		}
		tokens = nil
		for _, k := range all {
			if policy.Allow(who, c.grants, policy.JoinHost, cellTarget(k.Cell)).Allowed {
				tokens = append(tokens, k)
			}
		}
		return nil
	})
	return tokens, err
}
