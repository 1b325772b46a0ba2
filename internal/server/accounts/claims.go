package accounts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// CodeUserTaken is an error code: another user is called so, or nearly; see docs/errors.md.
const CodeUserTaken farm.Code = "user-name-taken"

// meansClaims is Identity.Means of who comes by an issuer; Source is then the login.
const meansClaims = "oidc"

// SignInClaims makes a session of somebody whom an issuer has signed in, as SignIn does of a token.
func (s *Accounts) SignInClaims(ctx context.Context, claims farm.Claims, b Browser) (farm.Session, string, error) {
	return s.start(ctx, b, func(t *store.Tx, now time.Time) (farm.Identity, time.Time, error) {
		who, err := s.claimant(t, claims, now)
		return who, time.Time{}, err
	})
}

// SignInOnce is SignInClaims for a token that somebody sent: what it says makes one session. Its text would not do to
// know it again: a signature can be written in several ways.
func (s *Accounts) SignInOnce(ctx context.Context, claims farm.Claims, b Browser) (farm.Session, string, error) {
	said, err := json.Marshal(claims.All)
	if err != nil {
		return farm.Session{}, "", err
	}
	digest := sha256.Sum256(said)
	return s.start(ctx, b, func(t *store.Tx, now time.Time) (farm.Identity, time.Time, error) {
		err := t.PutAnswer("issuer "+claims.Issuer, hex.EncodeToString(digest[:]), digest[:], nil, now)
		if farm.IsCode(err, store.CodeTaken) {
			err = notKnown("this identity token has made a session already; sign in again")
		}
		if err != nil {
			return farm.Identity{}, time.Time{}, err
		}
		who, err := s.claimant(t, claims, now)
		return who, time.Time{}, err
	})
}

// claimant is who has claims, as a user that is made if there is none yet and may be.
func (s *Accounts) claimant(t *store.Tx, claims farm.Claims, now time.Time) (farm.Identity, error) {
	u, isNew, err := userOf(t, claims)
	if err != nil {
		return farm.Identity{}, err
	}
	who, _, err := mapped(t, claims, u.Name)
	if err != nil || !isNew {
		return who, err
	}
	if err := t.PutUser(u); err != nil {
		return who, err
	}
	return who, t.Audit(action.Entry(who, now, policy.WriteUser, policy.Target{Name: "user " + u.Name}, action.Done,
		"signed in for the first time, by "+who.Source))
}

// mapped is a user with what mappings give to its claims.
func mapped(t *store.Tx, claims farm.Claims, user string) (farm.Identity, policy.Mapped, error) {
	mappings, err := t.Mappings()
	if err != nil {
		return farm.Identity{}, policy.Mapped{}, err
	}
	m := policy.Map(mappings, claims.Issuer, claims.All)
	return farm.Identity{User: user, Means: meansClaims, Source: claims.Issuer + ":" + claims.Subject,
		Grants: m.Grants(user)}, m, nil
}

// IdentifyClaims is who calls with a token of an issuer. A program has what mappings give to the token's claims, and
// nothing else of its user's: a token that was made to read files does not delete VMs.
func (s *Accounts) IdentifyClaims(ctx context.Context, claims farm.Claims) (who farm.Identity, err error) {
	err = s.actions.Store.View(ctx, func(t *store.Tx) error {
		login, err := farm.Login(claims.Issuer, claims.Subject)
		if err != nil {
			return err
		}
		u, err := enabledUser(t, login)
		if action.Missing(err) {
			return noLogin(nil, claims, login) // an issuer has more people than this server, and programs try again
		}
		if err == nil {
			who, _, err = mapped(t, claims, u.Name)
		}
		return err
	})
	who.Claimed = true
	if err != nil {
		return farm.Identity{}, err
	}
	return who, nil
}

// userOf is whose the claims are: the user with the login, never one by a name alone. One that may be made is new.
func userOf(t *store.Tx, claims farm.Claims) (u farm.User, isNew bool, err error) {
	login, err := farm.Login(claims.Issuer, claims.Subject)
	if err != nil {
		return u, false, err
	}
	if u, err = enabledUser(t, login); !action.Missing(err) {
		return u, false, err
	}
	all, err := t.Users()
	if err != nil {
		return u, false, err
	}
	if !claims.Create {
		return farm.User{}, false, noLogin(all, claims, login)
	}
	u, err = newUser(all, claims, login)
	return u, err == nil, err
}

// enabledUser is the one with a login.
func enabledUser(t *store.Tx, login string) (farm.User, error) {
	u, err := t.UserOfLogin(login)
	if err == nil && u.Disabled {
		return farm.User{}, notKnown("user %s is disabled", u.Name)
	}
	return u, err
}

// noLogin says that nobody has a login, and who of some users has one that differs in case alone.
func noLogin(all []farm.User, claims farm.Claims, login string) error {
	e := &farm.Error{Kind: farm.Denied, Code: farm.CodeNoLogin,
		Message: fmt.Sprintf("issuer %s knows you as %q, and no user of this server has this login", claims.Issuer,
			claims.Subject),
		Hint: fmt.Sprintf("an administrator gives it to your user: `grange user set USER --login '%s'`", login)}
	for _, u := range all {
		if i := slices.IndexFunc(u.Logins, func(l string) bool { return strings.EqualFold(l, login) }); i >= 0 {
			e.Message += fmt.Sprintf("; user %s has %q, which differs in case alone", u.Name, u.Logins[i])
			e.Hint = fmt.Sprintf("if it is the same person, an administrator corrects it: `grange user set %s "+
				"--without-login '%s' --login '%s'`", u.Name, u.Logins[i], login)
		}
	}
	return e
}

// newUser is one that is called as a claim says. A name that another user has, or one that differs from it in case
// alone, is refused: it would be taken for that one.
func newUser(all []farm.User, claims farm.Claims, login string) (farm.User, error) {
	names, why := policy.ClaimValues(claims.All, claims.NameClaim)
	if len(names) != 1 {
		return farm.User{}, &farm.Error{Kind: farm.Denied, Code: farm.CodeNoLogin,
			Message: fmt.Sprintf("you have no user yet, and claim %s of issuer %s, by which one would be called, has "+
				"%d values %s", claims.NameClaim, claims.Issuer, len(names), why),
			Hint: "an administrator sets name_claim of the issuer, or makes a user: `grange user set USER --login '" +
				login + "'`"}
	}
	u := farm.User{Name: names[0], Logins: []string{login}}
	if err := u.Validate(); err != nil {
		return farm.User{}, err
	}
	for _, other := range all {
		if strings.EqualFold(other.Name, u.Name) {
			return farm.User{}, nameTaken(other.Name, u.Name, login)
		}
	}
	return u, nil
}

func nameTaken(there, name, login string) error {
	e := &farm.Error{Kind: farm.Denied, Code: CodeUserTaken,
		Message: fmt.Sprintf("you would be user %s, and there is a user of this name already", name),
		Hint: fmt.Sprintf("if it is you, an administrator says so: `grange user set %s --login '%s'`; a name alone "+
			"proves nothing", there, login)}
	if there != name {
		e.Message = fmt.Sprintf("you would be user %s, and there is user %s, whose name differs in case alone", name,
			there)
	}
	return e
}

// ClaimsExplained is what claims would give, and why.
type ClaimsExplained struct {
	User    string // "": none
	New     bool   // the user would be made
	Refused error  // why nobody would be signed in; nil: somebody would
	Own     []farm.Grant
	Mapped  policy.Mapped
}

// ExplainClaims returns what a sign-in with claims would give, and changes nothing.
func (s *Accounts) ExplainClaims(ctx context.Context, who farm.Identity, claims farm.Claims) (out ClaimsExplained,
	err error) {
	err = s.actions.Look(ctx, who, policy.ReadFarm, func(c *action.Call) error {
		if err := c.May(policy.Target{}); err != nil {
			return err
		}
		u, isNew, refused := userOf(c.Tx, claims)
		if _, own := refused.(*farm.Error); refused != nil && !own {
			return refused
		}
		out = ClaimsExplained{User: u.Name, New: isNew, Refused: refused}
		var err error
		if _, out.Mapped, err = mapped(c.Tx, claims, u.Name); err != nil || u.Name == "" {
			return err
		}
		out.Own, err = c.Tx.Grants(u.Name)
		return err
	})
	return out, err
}
