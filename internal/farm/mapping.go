package farm

import (
	"fmt"
	"strings"
)

// Mapping gives a role to whoever an issuer says something of: whose claim has a value. It holds for the session or the
// token that the claim came with, and is no grant.
type Mapping struct {
	Issuer  string // its name in the server's configuration
	Claim   string // "wlcg.groups", "eduperson_entitlement", "groups"
	Value   string // one of the claim's, letter by letter
	Role    Role
	Project string
	Cell    string
}

// Grant is what the mapping gives to a user.
func (m Mapping) Grant(user string) Grant {
	return Grant{User: user, Role: m.Role, Project: m.Project, Cell: m.Cell}
}

// Validate refuses a mapping that cannot be.
func (m Mapping) Validate() error {
	switch {
	case CheckName("issuer", m.Issuer) != nil:
		return CheckName("issuer", m.Issuer)
	case m.Claim == "" || unprintable(m.Claim):
		return badFarm("mapping of issuer", m.Issuer, "claim is empty or cannot be printed: name one, as wlcg.groups")
	case m.Value == "" || unprintable(m.Value):
		return badFarm("mapping of issuer", m.Issuer, "value is empty or cannot be printed: write one of claim %s",
			m.Claim)
	}
	if err := m.Grant("anybody").Validate(); err != nil {
		return fmt.Errorf("mapping %v: %w", m, err)
	}
	return nil
}

// String is all of a mapping, and names it.
func (m Mapping) String() string {
	where := ""
	switch {
	case m.Project != "":
		where = " project:" + m.Project
	case m.Cell != "":
		where = " cell:" + m.Cell
	}
	return fmt.Sprintf("%s %s=%q %s%s", m.Issuer, m.Claim, m.Value, m.Role, where)
}

// maxSubject bounds the subject of an issuer, as OpenID Connect does.
const maxSubject = 255

// Login is how a user's logins have who an issuer knows under a subject: "cern:0f3c". The error is of kind Invalid.
func Login(issuer, subject string) (string, error) {
	if subject == "" || len(subject) > maxSubject || unprintable(subject) {
		return "", &Error{Kind: Invalid, Code: CodeBadFarm,
			Message: fmt.Sprintf("invalid subject %.80q of issuer %s", subject, issuer),
			Hint:    "it is the claim sub of the issuer's tokens, of at most 255 letters"}
	}
	return issuer + ":" + subject, nil
}

func checkLogin(user, login string) error {
	issuer, subject, ok := strings.Cut(login, ":")
	if !ok || CheckName("issuer", issuer) != nil {
		return badFarm("user", user, "invalid login %q: write the issuer's name and the claim sub, as \"cern:0f3c\"",
			login)
	}
	_, err := Login(issuer, subject)
	return err
}

// Claims is what an issuer says of somebody, in a token that holds.
type Claims struct {
	Issuer  string // its name in the server's configuration
	Subject string
	All     map[string]any
	// NameClaim is the claim by which a new user is called, if Create lets the subject become one.
	NameClaim string
	Create    bool
}
