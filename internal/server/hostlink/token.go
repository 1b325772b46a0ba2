package hostlink

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pki"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
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
	// maxJoinTokens of one maker
	maxJoinTokens = 1000
)

// trust is whom hosts believe about servers: the first is the one that join tokens name.
func (s *fleetCA) trust(ctx context.Context) ([]*x509.Certificate, error) {
	if len(s.ListenerCAs) > 0 {
		return s.ListenerCAs, nil
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
	if fault := farm.TagFault(o.Labels); fault != "" {
		return badJoin("labels of the host: %s", fault)
	}
	return nil
}

func badJoin(format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: CodeJoinOrder, Message: fmt.Sprintf(format, args...),
		Hint: "see `grange host token create --help`"}
}

// CreateJoinToken makes a join token. The text is told once: a request that is repeated is answered without it.
func (s *Links) CreateJoinToken(ctx context.Context, who farm.Identity, o JoinOrder) (k farm.JoinToken, text string,
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
	_, err = s.actions.Change(ctx, who, policy.JoinHost, func(c *action.Call) error {
		if _, err := c.FindCell(o.Cell); err != nil {
			return err
		}
		if err := mayReplace(c, o); err != nil {
			return err
		}
		if err := mayLater(c, o.Cell); err != nil {
			return err
		}
		ids, again, err := c.Once(key, o, func() ([]string, error) { return makeJoinToken(c, token, o) })
		if err != nil {
			return err
		}
		if text = token.String(); again {
			text = ""
		}
		if k, err = c.JoinToken(ids[0]); action.Missing(err) {
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
func mayReplace(c *action.Call, o JoinOrder) error {
	if o.Name == "" {
		return nil
	}
	old, err := c.HostNamed(o.Name)
	if action.Missing(err) || err == nil && old.Cell == o.Cell {
		return nil
	}
	if err != nil {
		return err
	}
	token, target := c.Target, action.HostTarget(old)
	if !c.SeesHost(old) {
		target.Cell = "" // which the caller is not told
	}
	if err := c.May(target); err != nil {
		return err
	}
	c.Target = token
	return nil
}

// mayLater refuses a token whose maker has its role by a login alone: who uses the token later meets the maker's own
// roles of that day, and no issuer is asked then.
func mayLater(c *action.Call, cell string) error {
	if c.Who.User == "" || c.Who.Root {
		return nil
	}
	own, err := c.Tx.Grants(c.Who.User)
	if err != nil {
		return err
	}
	if access := policy.Allow(farm.Identity{User: c.Who.User}, own, policy.JoinHost,
		action.CellTarget(cell)); access.Allowed {
		return nil
	}
	return &farm.Error{Kind: farm.Denied, Code: farm.CodeNoRole,
		Message: "you may let hosts join by what your issuer says of you, and a join token is used without the issuer",
		Hint: fmt.Sprintf("an administrator gives you a role of your own: `grange user grant %s admin`, with --cell",
			c.Who.User)}
}

func makeJoinToken(c *action.Call, token pki.JoinToken, o JoinOrder) ([]string, error) {
	k := farm.JoinToken{ID: token.ID, Hash: token.Hash(), Cell: o.Cell, Name: o.Name, Labels: o.Labels,
		By: cmp.Or(c.Who.User, action.Root), Expires: c.Now.Add(cmp.Or(o.Valid, joinValid)), Count: max(o.Count, 1),
		CA: token.Fingerprint}
	if err := makeRoom(c, k.By); err != nil {
		return nil, err
	}
	if err := c.PutJoinToken(k); err != nil {
		return nil, err
	}
	return []string{k.ID}, c.Did("join token " + k.ID)
}

// makeRoom deletes the tokens of a maker by which no host can enrol any more, where it has as many as it may have. It
// refuses where all are in use; root makes as many as it needs.
func makeRoom(c *action.Call, maker string) error {
	all, err := c.JoinTokens()
	if err != nil {
		return err
	}
	mine := slices.DeleteFunc(all, func(k farm.JoinToken) bool { return k.By != maker })
	if len(mine) < maxJoinTokens {
		return nil
	}
	left := len(mine)
	for _, k := range mine {
		if k.Expires.After(c.Now) && k.Uses < max(k.Count, 1) {
			continue
		}
		if err := c.Tx.DeleteJoinToken(k.ID); err != nil {
			return err
		}
		left--
	}
	if left < maxJoinTokens || c.Who.Root {
		return nil
	}
	return &farm.Error{Kind: farm.Denied, Code: farm.CodeQuota,
		Message: fmt.Sprintf("%s has %d join tokens that hosts can use, and may have no more", maker, left),
		Hint:    "take some back: `grange host token list`; or make one for several hosts, with a count"}
}

// DeleteJoinToken takes a join token back, by its ID: no more hosts enrol with it. Hosts that did stay.
func (s *Links) DeleteJoinToken(ctx context.Context, who farm.Identity, id string) error {
	_, err := s.actions.Change(ctx, who, policy.JoinHost, func(c *action.Call) error {
		c.Target = policy.Target{Name: farm.Printable("join token " + id)}
		k, err := c.JoinToken(id)
		if action.Missing(err) || err == nil && c.May(action.CellTarget(k.Cell)) != nil {
			return noJoinToken(id)
		}
		if err != nil {
			return err
		}
		if err := c.Tx.DeleteJoinToken(id); err != nil {
			return err
		}
		return c.Did("join token " + id + " taken back")
	})
	return err
}

func noJoinToken(id string) error {
	return &farm.Error{Kind: farm.NotFound, Code: action.CodeNoToken,
		Message: fmt.Sprintf("no join token %.80q of yours", id),
		Hint:    "`grange host token list` shows those; name one by its ID"}
}

// JoinTokens are those that were made, and that the caller could have made.
func (s *Links) JoinTokens(ctx context.Context, who farm.Identity) ([]farm.JoinToken, error) {
	var tokens []farm.JoinToken
	err := s.actions.Look(ctx, who, policy.JoinHost, func(c *action.Call) error {
		all, err := c.Tx.JoinTokens()
		if err != nil {
			return err
		}
		tokens = nil
		for _, k := range all {
			if policy.Allow(who, c.Grants, policy.JoinHost, action.CellTarget(k.Cell)).Allowed {
				tokens = append(tokens, k)
			}
		}
		return nil
	})
	return tokens, err
}
