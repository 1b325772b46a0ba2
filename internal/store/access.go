package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// accountRows are users, their roles and tokens.
type accountRows struct{ *sqlTx }

func users() noun[farm.User] {
	return noun[farm.User]{kind: KindUser, what: "user", name: func(u farm.User) string { return u.Name },
		revise: func(u *farm.User, r int64) { u.Revision = r }}
}

// User is the one with a name.
func (t accountRows) User(name string) (farm.User, error) { return users().get(t.sqlTx, name) }

// UserOfSubject is the one whose certificates have a subject.
func (t accountRows) UserOfSubject(subject string) (farm.User, error) {
	var name string
	if err := t.row("SELECT person FROM subjects WHERE subject = $1", subject).Scan(&name); err != nil {
		return farm.User{}, found(err, "user with the certificate", subject)
	}
	return t.User(name)
}

// loginKey begins a login among the subjects. No subject of a certificate begins so.
const loginKey = "login "

func loginKeys(logins []string) (keys []string) {
	for _, l := range logins {
		keys = append(keys, loginKey+l)
	}
	return keys
}

// UserOfLogin is the one whom an issuer knows so.
func (t accountRows) UserOfLogin(login string) (farm.User, error) {
	var name string
	if err := t.row("SELECT person FROM subjects WHERE subject = $1", loginKey+login).Scan(&name); err != nil {
		return farm.User{}, found(err, "user with the login", login)
	}
	return t.User(name)
}

// Users are all.
func (t accountRows) Users() ([]farm.User, error) { return users().list(t.sqlTx, "") }

// PutUser writes a user, new or not; one that is disabled loses its sessions, which must not be there again when it is
// enabled. CodeTaken: a subject or a login is
// another user's.
func (t accountRows) PutUser(u farm.User) error {
	if u.Disabled {
		if err := t.forgetSessions(u.Name); err != nil {
			return err
		}
	}
	if err := t.forgetSubjects(u.Name); err != nil {
		return err
	}
	for _, subject := range slices.Concat(u.Subjects, loginKeys(u.Logins)) {
		if _, err := t.keep("INSERT INTO subjects (subject, person) VALUES ($1, $2) ON CONFLICT DO NOTHING", subject,
			u.Name); err != nil {
			return err
		}
		var person string
		if err := t.row("SELECT person FROM subjects WHERE subject = $1", subject).Scan(&person); err != nil {
			return err
		}
		if person != u.Name {
			what, name := "certificate", subject
			if login, ok := strings.CutPrefix(subject, loginKey); ok {
				what, name = "login", login
			}
			return taken(fmt.Sprintf("the %s %q is user %s's", what, name, person),
				"a "+what+" stands for one user: take it from that one first")
		}
	}
	return users().put(t.sqlTx, u)
}

func (t accountRows) forgetSubjects(user string) error {
	_, err := t.keep("DELETE FROM subjects WHERE person = $1", user)
	return err
}

func (t accountRows) forgetSessions(user string) error {
	_, err := t.keep("DELETE FROM sessions WHERE person = $1", user)
	return err
}

// keep is exec for rows that say again what another row says: they alone are no reason for a revision.
func (t *sqlTx) keep(text string, args ...any) (int64, error) {
	wrote := t.wrote
	n, err := t.exec(text, args...)
	t.wrote = wrote
	return n, err
}

// DeleteUser takes a user away, with all grants and tokens, and the answers that are kept for its idempotency keys.
func (t accountRows) DeleteUser(name string) error {
	if err := users().drop(t.sqlTx, name); err != nil {
		return err
	}
	if err := errors.Join(t.forgetSubjects(name), t.forgetSessions(name)); err != nil {
		return err
	}
	if err := grants().dropOf(t.sqlTx, name); err != nil {
		return err
	}
	if err := tokens().dropOf(t.sqlTx, name); err != nil {
		return err
	}
	_, err := t.exec("DELETE FROM answers WHERE who = $1", name)
	return err
}

func grants() noun[farm.Grant] {
	return noun[farm.Grant]{kind: KindGrant, what: "role", name: grantName,
		owner:  func(g farm.Grant) string { return g.User },
		change: func(g farm.Grant, c *Change) { c.Project = g.Project }}
}

// grantName is all of a grant. Neither names of users nor those of projects and cells have a line break, and if they
// had, the parts are quoted.
func grantName(g farm.Grant) string {
	return strings.Join([]string{fmt.Sprintf("%q", g.User), string(g.Role), fmt.Sprintf("%q", g.Project),
		fmt.Sprintf("%q", g.Cell)}, " ")
}

// Grants are those of a user; "": of all.
func (t accountRows) Grants(user string) ([]farm.Grant, error) { return grants().list(t.sqlTx, user) }

// PutGrant gives a role; to give it twice is to give it once.
func (t accountRows) PutGrant(g farm.Grant) error { return grants().put(t.sqlTx, g) }

// DeleteGrant takes a role back.
func (t accountRows) DeleteGrant(g farm.Grant) error { return grants().drop(t.sqlTx, grantName(g)) }

func mappings() noun[farm.Mapping] {
	return noun[farm.Mapping]{kind: KindMapping, what: "mapping", name: farm.Mapping.String}
}

// Mappings are all.
func (t accountRows) Mappings() ([]farm.Mapping, error) { return mappings().list(t.sqlTx, "") }

// PutMapping writes a mapping; to write it twice is to write it once.
func (t accountRows) PutMapping(m farm.Mapping) error { return mappings().put(t.sqlTx, m) }

// DeleteMapping takes a mapping away. What it gave to sessions stays until these end.
func (t accountRows) DeleteMapping(m farm.Mapping) error { return mappings().drop(t.sqlTx, m.String()) }

func tokens() noun[farm.Token] {
	return noun[farm.Token]{kind: KindToken, what: "token", name: func(k farm.Token) string { return k.ID },
		owner: func(k farm.Token) string { return k.User }, revise: func(k *farm.Token, r int64) { k.Revision = r }}
}

// Token is the one with an ID.
func (t accountRows) Token(id string) (farm.Token, error) { return tokens().get(t.sqlTx, id) }

// Tokens are those of a user; "": of all.
func (t accountRows) Tokens(user string) ([]farm.Token, error) { return tokens().list(t.sqlTx, user) }

// PutToken writes a token, new or not.
func (t accountRows) PutToken(k farm.Token) error { return tokens().put(t.sqlTx, k) }

// DeleteToken takes a token away.
func (t accountRows) DeleteToken(id string) error { return tokens().drop(t.sqlTx, id) }

func joinTokens() noun[farm.JoinToken] {
	return noun[farm.JoinToken]{kind: KindJoinToken, what: "join token",
		name: func(k farm.JoinToken) string { return k.ID }}
}

// JoinToken is the one with an ID.
func (t accountRows) JoinToken(id string) (farm.JoinToken, error) {
	return joinTokens().get(t.sqlTx, id)
}

// JoinTokens are all, used ones too.
func (t accountRows) JoinTokens() ([]farm.JoinToken, error) { return joinTokens().list(t.sqlTx, "") }

// PutJoinToken writes a join token, new or not.
func (t accountRows) PutJoinToken(k farm.JoinToken) error { return joinTokens().put(t.sqlTx, k) }

// DeleteJoinToken takes a join token away.
func (t accountRows) DeleteJoinToken(id string) error { return joinTokens().drop(t.sqlTx, id) }
