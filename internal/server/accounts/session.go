package accounts

import (
	"cmp"
	"context"
	"crypto/subtle"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// CodeNoSession is an error code; see docs/errors.md.
const CodeNoSession farm.Code = "no-session"

// sessionPrefix begins the text of a session, as tokenPrefix that of a token.
const sessionPrefix = "grs_"

const (
	// maxSessions of one user: the one that was used longest ago ends when there are more.
	maxSessions = 50
	maxClient   = 200 // bytes of what a browser says of itself
)

// meansSession is Identity.Means of who signed in; Source is then the session's ID.
const meansSession = "session"

// SessionLimits are how long a sign-in lasts.
type SessionLimits struct {
	Idle  time.Duration // without a request; 0: DefaultIdle
	Total time.Duration // 0: DefaultTotal
}

// The limits where nothing else is configured. What the claims of an issuer gave is as old as the sign-in: Total bounds
// that as well.
const (
	DefaultIdle  = 8 * time.Hour
	DefaultTotal = 24 * time.Hour
)

func (l SessionLimits) withDefaults() SessionLimits {
	return SessionLimits{Idle: cmp.Or(l.Idle, DefaultIdle), Total: cmp.Or(l.Total, DefaultTotal)}
}

// ends is when a session ends that is not used any more.
func (l SessionLimits) ends(used, limit time.Time) time.Time {
	if end := used.Add(l.Idle); end.Before(limit) {
		return end
	}
	return limit
}

// grain is how old the time of the last use may be: each use need not be written.
func (l SessionLimits) grain() time.Duration { return min(l.Idle/20, 5*time.Minute) }

// Browser is what signs in, or a command line.
type Browser struct {
	Client  string // what it says of itself
	Address string
	Session string // text of the session that it has; "": none. That one ends: a new sign-in never goes on with it.
}

// SignIn makes a session of somebody who has shown a token. Its text, "grs_ID_SECRET", is told here and kept nowhere.
func (s *Accounts) SignIn(ctx context.Context, token string, b Browser) (farm.Session, string, error) {
	who, err := s.IdentifyToken(ctx, token)
	if err == nil && who.Means != meansToken {
		err = notKnown("this is a session, and none is made of another one: show a token, which begins with %s",
			tokenPrefix)
	}
	if err != nil {
		return farm.Session{}, "", err
	}
	return s.start(ctx, b, func(t *store.Tx, _ time.Time) (farm.Identity, time.Time, error) {
		k, err := t.Token(who.Source)
		if action.Missing(err) {
			err = notKnown("token %s was taken back", who.Source)
		}
		return who, k.Expires, err
	})
}

// prover says, in the transaction that makes a session, whose it is, and when what was shown expires; zero: never.
type prover func(t *store.Tx, now time.Time) (who farm.Identity, until time.Time, err error)

// start makes a session.
func (s *Accounts) start(ctx context.Context, b Browser, prove prover) (session farm.Session, text string, err error) {
	now, id, secret := s.actions.Now().UTC(), random(tokenID), random(tokenSecret)
	_, err = s.actions.Store.Update(ctx, func(t *store.Tx) error {
		who, until, err := prove(t, now)
		if err == nil {
			err = s.actions.Charge(who, 1)
		}
		if err != nil {
			return err
		}
		session = farm.Session{ID: id, User: who.User, Hash: hashOf(secret), Client: clientName(b.Client),
			Address: b.Address, Means: who.Means, Source: who.Source, Role: who.Role, Projects: who.Projects,
			Grants: who.Grants, Created: now, Used: now, Limit: now.Add(s.limits.Total)}
		if !until.IsZero() && until.Before(session.Limit) {
			session.Limit = until
		}
		session.Ends = s.limits.ends(now, session.Limit)
		if err := mayStart(t, session.User); err != nil {
			return err
		}
		if err := dropShown(t, b.Session); err != nil {
			return err
		}
		if err := t.InsertSession(session); err != nil {
			return err
		}
		return t.Audit(action.Entry(who, now, action.StartSession, sessionTarget(session), action.Done, b.Address))
	})
	return session, sessionPrefix + id + "_" + secret, err
}

// mayStart refuses users that are gone or disabled, and makes room for one more session.
func mayStart(t *store.Tx, user string) error {
	u, err := t.User(user)
	if action.Missing(err) || err == nil && u.Disabled {
		return notKnown("user %s is disabled, or was deleted", user)
	}
	if err != nil {
		return err
	}
	held, err := t.Sessions(user)
	slices.SortFunc(held, func(a, b farm.Session) int { return a.Used.Compare(b.Used) })
	for i := 0; err == nil && i <= len(held)-maxSessions; i++ {
		err = t.DeleteSession(held[i].ID)
	}
	return err
}

// dropShown ends the session that a browser shows, if it is one.
func dropShown(t *store.Tx, text string) error {
	old, err := sessionShown(t, text)
	if err == nil {
		err = t.DeleteSession(old.ID)
	}
	if action.Missing(err) {
		return nil
	}
	return err
}

// sessionShown is the session with a text. farm.NotFound: there is none.
func sessionShown(t *store.Tx, text string) (farm.Session, error) {
	id, secret, ok := splitSecret(sessionPrefix, text)
	if !ok {
		return farm.Session{}, noSession("")
	}
	s, err := t.Session(id)
	if err == nil && subtle.ConstantTimeCompare(hashOf(secret), s.Hash) != 1 {
		err = noSession(id)
	}
	return s, err
}

func sessionTarget(s farm.Session) policy.Target {
	return policy.Target{Owner: s.User, Name: "session " + s.ID + " of user " + s.User}
}

// clientName is what a browser says of itself, as far as it can be shown.
func clientName(text string) string {
	text = farm.Printable(strings.ToValidUTF8(text, "?"))
	if len(text) > maxClient {
		text = strings.ToValidUTF8(text[:maxClient], "")
	}
	return text
}

// IdentifySession is who calls with the text of a session. farm.CodeNotKnown: it has ended, its user is disabled, or
// what it was made by, a token or a login, is no more.
func (s *Accounts) IdentifySession(ctx context.Context, text string) (farm.Identity, error) {
	var found farm.Session
	var u farm.User
	now := s.actions.Now().UTC()
	err := s.actions.Store.View(ctx, func(t *store.Tx) (err error) {
		if found, err = sessionShown(t, text); err != nil {
			return err
		}
		if u, err = t.User(found.User); err == nil {
			err = stillProven(t, found)
		}
		return err
	})
	switch {
	case action.Missing(err), err == nil && !now.Before(found.Ends):
		return farm.Identity{}, &farm.Error{Kind: farm.Denied, Code: farm.CodeNotKnown,
			Message: "this session has ended", Hint: "sign in again: at /auth/login, or by `grange login`"}
	case err != nil:
		return farm.Identity{}, err
	case u.Disabled:
		return farm.Identity{}, notKnown("user %s is disabled", u.Name)
	}
	s.used(ctx, found, now)
	return farm.Identity{User: u.Name, Means: meansSession, Source: found.ID, Role: found.Role,
		Projects: found.Projects, Grants: found.Grants}, nil
}

// stillProven refuses a session whose token was taken back, or whose login is its user's no more.
func stillProven(t *store.Tx, s farm.Session) error {
	switch s.Means {
	case meansToken:
		_, err := t.Token(s.Source)
		return err
	case meansClaims:
		u, err := t.UserOfLogin(s.Source)
		if err == nil && u.Name != s.User {
			err = noSession(s.ID)
		}
		return err
	}
	return nil
}

// used notes that a session goes on. Where that cannot be written it goes on all the same, until it would have ended.
func (s *Accounts) used(ctx context.Context, session farm.Session, now time.Time) {
	if now.Sub(session.Used) < s.limits.grain() {
		return
	}
	err := s.actions.Store.SawSession(ctx, session.ID, now, s.limits.ends(now, session.Limit))
	if err != nil && ctx.Err() == nil {
		s.actions.Log.Warn("the use of a session could not be written", "session", session.ID, "error", err)
	}
}

// SignOut ends the session with a text. One that has ended already is none to complain of.
func (s *Accounts) SignOut(ctx context.Context, text string) error {
	now := s.actions.Now().UTC()
	_, err := s.actions.Store.Update(ctx, func(t *store.Tx) error {
		found, err := sessionShown(t, text)
		if action.Missing(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := t.DeleteSession(found.ID); err != nil {
			return err
		}
		who := farm.Identity{User: found.User, Means: meansSession, Source: found.ID}
		return t.Audit(action.Entry(who, now, policy.EndSession, sessionTarget(found), action.Done, "signed out"))
	})
	return err
}

// Sessions are who is signed in of a user, without what would let anybody go on with one; "": the caller.
func (s *Accounts) Sessions(ctx context.Context, who farm.Identity, user string) (all []farm.Session, err error) {
	err = s.actions.Look(ctx, who, policy.ReadSession, func(c *action.Call) error {
		name := cmp.Or(user, who.User)
		if err := c.May(userTarget(name)); err != nil {
			return err
		}
		if name == who.User && who.Root {
			name = "" // root has none of its own, and sees all
		}
		all, err = action.OrNone(c.Tx.Sessions(name))
		all = slices.DeleteFunc(all, func(s farm.Session) bool { return !c.Now.Before(s.Ends) })
		for i := range all {
			all[i].Hash = nil
		}
		return err
	})
	return all, err
}

// EndSession ends a session, by its ID.
func (s *Accounts) EndSession(ctx context.Context, who farm.Identity, id string) error {
	_, err := s.actions.Change(ctx, who, policy.EndSession, func(c *action.Call) error {
		c.Target = policy.Target{Name: farm.Printable("session " + id)}
		found, err := c.Session(id)
		if action.Missing(err) || err == nil && c.May(sessionTarget(found)) != nil {
			return noSession(id)
		}
		if err != nil {
			return err
		}
		if err := c.DeleteSession(id); err != nil {
			return err
		}
		return c.Did("")
	})
	return err
}

func noSession(id string) error {
	return &farm.Error{Kind: farm.NotFound, Code: CodeNoSession, Message: fmt.Sprintf("you have no session %.80q", id),
		Hint: "`grange auth sessions list` shows yours; name one by its ID"}
}
