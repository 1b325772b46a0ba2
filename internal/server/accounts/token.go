package accounts

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// tokenPrefix begins the text of a token, so that programs which look for secrets in what people publish find it.
const tokenPrefix = "grt_"

const (
	tokenID     = 8  // bytes; public
	tokenSecret = 32 // bytes: nobody guesses that, so one round of SHA-256 keeps it
	maxTokens   = 100
	maxNote     = 200
)

// TokenOrder asks for a token.
type TokenOrder struct {
	User     string // "": the caller
	Note     string
	Role     farm.Role // at most; "": the user's own
	Projects []string  // only these; none: all of the user's
	Expires  time.Time // zero: never

	Once string // idempotency key, as CreateVM has it
}

func (o TokenOrder) check(now time.Time) error {
	bad := func(format string, args ...any) error {
		return &farm.Error{Kind: farm.Invalid, Code: CodeBadTokenOrder, Message: fmt.Sprintf(format, args...),
			Hint: "see `grange token create --help`"}
	}
	switch {
	case len(o.Note) > maxNote || o.Note != farm.Printable(o.Note):
		return bad("the note has more than %d bytes, or cannot be printed", maxNote)
	case o.Role != "" && !o.Role.Valid():
		return bad("no role is called %q; there are %v", o.Role, farm.Roles)
	case len(o.Projects) > maxTokens:
		return bad("%d projects; at most %d", len(o.Projects), maxTokens)
	case !o.Expires.IsZero() && !o.Expires.After(now):
		return bad("the token would expire at %s, which is past", o.Expires.UTC().Format(time.RFC3339))
	}
	return nil
}

// CreateToken makes a token. Its text, as "grt_ID_SECRET", is told here and kept nowhere: a request that is repeated is
// answered without it.
func (s *Accounts) CreateToken(ctx context.Context, who farm.Identity, o TokenOrder) (token farm.Token, text string,
	err error) {
	key, secret := o.Once, random(tokenSecret)
	o.Once = ""
	_, err = s.actions.Change(ctx, who, policy.MakeToken, func(c *action.Call) error {
		name := cmp.Or(o.User, who.User)
		if err := c.May(userTarget(name)); err != nil {
			return err
		}
		ids, again, err := c.Once(key, o, func() ([]string, error) { return makeToken(c, name, secret, o) })
		if err != nil {
			return err
		}
		if text = ""; !again {
			text = tokenPrefix + ids[0] + "_" + secret
		}
		token, err = c.Token(ids[0])
		if action.Missing(err) {
			return noToken(ids[0])
		}
		return err
	})
	if err != nil {
		return farm.Token{}, "", err
	}
	token.Hash = nil
	return token, text, nil
}

func makeToken(c *action.Call, user, secret string, o TokenOrder) ([]string, error) {
	if err := o.check(c.Now); err != nil {
		return nil, err
	}
	if err := mayHold(c, user, o); err != nil {
		return nil, err
	}
	id := random(tokenID)
	err := c.PutToken(farm.Token{ID: id, User: user, Note: o.Note, Hash: hashOf(secret), Role: o.Role,
		Projects: o.Projects, Created: c.Now, Expires: o.Expires.UTC()})
	if err != nil {
		return nil, err
	}
	return []string{id}, c.Did("token " + id)
}

// mayHold refuses tokens of users that are not there, of projects that are not there, and such as would outlive the
// token that makes them.
func mayHold(c *action.Call, user string, o TokenOrder) error {
	if _, err := findUser(c, user); err != nil {
		return err
	}
	for _, p := range o.Projects {
		if _, err := c.Tx.Project(p); action.Missing(err) {
			return action.NoProject(p)
		} else if err != nil {
			return err
		}
	}
	held, err := c.Tx.Tokens(user)
	if err != nil {
		return err
	}
	if len(held) >= maxTokens {
		return &farm.Error{Kind: farm.Conflict, Code: CodeBadTokenOrder,
			Message: fmt.Sprintf("user %s has %d tokens", user, len(held)),
			Hint:    "revoke those that nobody needs: `grange token list`"}
	}
	own, err := callersToken(c)
	if err != nil {
		return err
	}
	if !own.Expires.IsZero() && (o.Expires.IsZero() || o.Expires.After(own.Expires)) {
		return &farm.Error{Kind: farm.Denied, Code: farm.CodeNoRole,
			Message: fmt.Sprintf("a token cannot make one that outlives it, beyond %s",
				own.Expires.UTC().Format(time.RFC3339)),
			Hint: "let it expire sooner, or come with a certificate or by the server's own socket"}
	}
	return nil
}

// callersToken is the token that the caller came with, or signed in with; the zero value: none.
func callersToken(c *action.Call) (farm.Token, error) {
	id := c.Who.Source
	if c.Who.Means == meansSession {
		session, err := c.Session(id)
		if action.Missing(err) {
			return farm.Token{}, notKnown("session %s has ended", id)
		}
		if err != nil || session.Means != meansToken {
			return farm.Token{}, err
		}
		id = session.Source
	} else if c.Who.Means != meansToken {
		return farm.Token{}, nil
	}
	k, err := c.Token(id)
	if action.Missing(err) {
		err = notKnown("token %s was taken back", id)
	}
	return k, err
}

// meansToken is Identity.Means of who came with a token; Source is then its ID.
const meansToken = "token"

func random(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func hashOf(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// Tokens are the tokens of a user, without what would let anybody use them; "": the caller's.
func (s *Accounts) Tokens(ctx context.Context, who farm.Identity, user string) (tokens []farm.Token, err error) {
	err = s.actions.Look(ctx, who, policy.ReadToken, func(c *action.Call) error {
		name := cmp.Or(user, who.User)
		if err := c.May(userTarget(name)); err != nil {
			return err
		}
		if name == who.User && who.Root {
			name = "" // root has none of its own, and sees all
		}
		tokens, err = action.OrNone(c.Tx.Tokens(name))
		for i := range tokens {
			tokens[i].Hash = nil
		}
		return err
	})
	slices.SortFunc(tokens, func(a, b farm.Token) int { return cmp.Compare(a.ID, b.ID) })
	return tokens, err
}

// DeleteToken takes a token back, by its ID.
func (s *Accounts) DeleteToken(ctx context.Context, who farm.Identity, id string) error {
	_, err := s.actions.Change(ctx, who, policy.DropToken, func(c *action.Call) error {
		c.Target = policy.Target{Name: farm.Printable("token " + id)}
		k, err := c.Token(id)
		if action.Missing(err) || err == nil && c.May(policy.Target{Owner: k.User, Name: "token " + id}) != nil {
			return noToken(id)
		}
		if err != nil {
			return err
		}
		if err := c.Tx.DeleteToken(id); err != nil {
			return err
		}
		return c.Did("of user " + k.User)
	})
	return err
}

func noToken(id string) error {
	return &farm.Error{Kind: farm.NotFound, Code: action.CodeNoToken, Message: fmt.Sprintf("you have no token %.80q",
		id),
		Hint: "`grange token list` shows yours; name one by its ID"}
}

// IdentifyToken is who calls with the text of a token, or with that of a command line's session. farm.CodeNotKnown: it
// is none, has expired, was taken back, or its user is disabled. Only who has the whole secret hears which of them.
func (s *Accounts) IdentifyToken(ctx context.Context, text string) (farm.Identity, error) {
	if strings.HasPrefix(text, sessionPrefix) {
		return s.IdentifySession(ctx, text)
	}
	id, secret, ok := splitSecret(tokenPrefix, text)
	if !ok {
		return farm.Identity{}, notKnown("not a token of grange; one begins with %s", tokenPrefix)
	}
	var k farm.Token
	var u farm.User
	err := s.actions.Store.View(ctx, func(t *store.Tx) (err error) {
		if k, err = t.Token(id); err == nil {
			u, err = t.User(k.User)
		}
		return err
	})
	switch {
	case err != nil && !action.Missing(err):
		return farm.Identity{}, err
	case err != nil, subtle.ConstantTimeCompare(hashOf(secret), k.Hash) != 1:
		return farm.Identity{}, notKnown("the server does not know this token; it may have been taken back")
	case !k.Expires.IsZero() && !s.actions.Now().Before(k.Expires):
		return farm.Identity{}, notKnown("token %s has expired at %s", id, k.Expires.UTC().Format(time.RFC3339))
	case u.Disabled:
		return farm.Identity{}, notKnown("user %s is disabled", u.Name)
	}
	return farm.Identity{User: u.Name, Means: meansToken, Source: id, Role: k.Role, Projects: k.Projects}, nil
}

// splitSecret takes the text of a token or of a session apart.
func splitSecret(prefix, text string) (id, secret string, ok bool) {
	rest, ok := strings.CutPrefix(text, prefix)
	if !ok || len(text) > 200 {
		return "", "", false
	}
	id, secret, ok = strings.Cut(rest, "_")
	return id, secret, ok && len(id) == 2*tokenID && len(secret) == 2*tokenSecret
}
