package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/grange-project/grange/e2e/oidclab"
)

const itEntitlement = "urn:geant:example.org:group:it#issuer.example.org"

// matrix: each claim gives the roles that mappings say, in each form in which issuers write it, to each subject that
// has a user, and its own roles to no program.
func (l *lab) matrix(context.Context) error {
	type claims = map[string]any
	var all []error
	for _, subject := range []string{"ann", "bob", "robot"} {
		for _, c := range []struct {
			claims claims
			want   []string
		}{
			{claims{}, nil},
			{claims{"groups": "atlas"}, []string{"member atlas"}},
			{claims{"groups": []string{"x", "atlas"}}, []string{"member atlas"}},
			{claims{"groups": []any{"x", 7, "atlas"}}, []string{"member atlas"}},
			{claims{"groups": "atlas x"}, nil}, // only a scope is taken apart
			{claims{"groups": "ATLAS"}, nil},
			{claims{"groups": " atlas"}, nil},
			{claims{"groups": claims{"atlas": true}}, nil},
			{claims{"Groups": "atlas"}, nil},
			{claims{"wlcg.groups": []string{"/cms/production"}, "wlcg.ver": "1.0"}, []string{"operator cms"}},
			{claims{"wlcg.groups": []string{"/cms", "/cms/Production"}, "wlcg.ver": "1.2"}, nil},
			{claims{"wlcg": claims{"groups": "/cms/production"}}, []string{"operator cms"}},
			{claims{"eduperson_entitlement": []string{itEntitlement}}, []string{"operator general"}},
			{claims{"eduperson_entitlement": strings.TrimSuffix(itEntitlement, "#issuer.example.org")}, nil},
			{claims{"scope": "openid compute.read compute.modify"}, []string{"reader"}},
			{claims{"scope": "compute.read.all"}, nil},
			{claims{"realm_access": claims{"roles": []string{"grange-admin"}}}, []string{"admin"}},
			{claims{"realm_access.roles": "grange-admin"}, []string{"admin"}},
			{claims{"groups": "everybody"}, nil}, // of another issuer
			{claims{"groups": "atlas", "scope": "compute.read", "eduperson_entitlement": itEntitlement},
				[]string{"member atlas", "operator general", "reader"}},
		} {
			l.Combined++
			token, err := l.provider.Sign(l.provider.Claims(subject, oidclab.Audience, c.claims))
			if err != nil {
				return err
			}
			who, a, err := l.bearer(token)
			if got := roles(who); err != nil || who.User != subject || !slices.Equal(got, c.want) {
				all = append(all, wrong(err, "%s with %v has %q, and should have %q: %d %s", subject, c.claims,
					got, c.want, a.status, a.text))
			}
		}
	}
	token, err := l.provider.Sign(l.provider.Claims("nobody", oidclab.Audience, map[string]any{"groups": "atlas"}))
	if err != nil {
		return err
	}
	if _, a, err := l.bearer(token); err != nil || !strings.Contains(a.text, "no-login") {
		all = append(all, wrong(err, "a subject without a user: %d %s", a.status, a.text))
	}
	return errors.Join(all...)
}

// badTokens: none that does not hold in each way is taken, as a program's or as a sign-in.
func (l *lab) badTokens(context.Context) error {
	forged, err := oidclab.NewKey()
	if err != nil {
		return err
	}
	forged.KeyID = l.provider.Private.KeyID
	public, err := json.Marshal(l.provider.Private.Public())
	if err != nil {
		return err
	}
	now := time.Now()
	type bad struct {
		name, token string
		err         error
	}
	var program, person []bad
	for name, change := range map[string]map[string]any{
		"expired":                {"exp": now.Add(-time.Minute).Unix()},
		"without an end":         {"exp": nil},
		"not yet":                {"nbf": now.Add(time.Hour).Unix()},
		"of another issuer":      {"iss": "https://127.0.0.1:1"},
		"of nobody's issuer":     {"iss": nil},
		"of nobody":              {"sub": nil},
		"for another":            {"aud": "https://other.example"},
		"for all":                {"aud": nil},
		"for sign-ins":           {"aud": oidclab.ClientID},
		"of a later WLCG":        {"wlcg.ver": "2.0"},
		"of a subject with text": {"sub": "ann\n"},
	} {
		token, err := l.provider.Sign(l.provider.Claims("ann", oidclab.Audience, change))
		program = append(program, bad{name, token, err})
	}
	for name, change := range map[string]map[string]any{
		"old":              {"iat": now.Add(-time.Hour).Unix()},
		"of no age":        {"iat": nil},
		"given to another": {"azp": "other"},
		"for two":          {"aud": []string{oidclab.DeviceID, "other"}},
		"with a scope":     {"scope": "openid"},
		"of a browser":     {"aud": oidclab.ClientID},
		"of a program":     {"aud": oidclab.Audience},
		"for access":       {"typ": "Bearer"},
	} {
		token, err := l.provider.Sign(l.provider.Claims("ann", oidclab.DeviceID, change))
		person = append(person, bad{name, token, err})
	}
	access, err := oidclab.SignWith(l.provider.Private, jose.ES256, "at+jwt",
		l.provider.Claims("ann", oidclab.DeviceID, nil))
	person = append(person, bad{"an access token", access, err})
	for _, one := range []struct {
		audience string
		all      *[]bad
	}{{oidclab.Audience, &program}, {oidclab.DeviceID, &person}} {
		claims := l.provider.Claims("ann", one.audience, nil)
		good, err := l.provider.Sign(claims)
		other, err1 := oidclab.SignWith(forged, jose.ES256, "JWT", claims)
		secret, err2 := oidclab.SignWith(public, jose.HS256, "JWT", claims)
		parts := strings.Split(good, ".")
		*one.all = append(*one.all, bad{"signed by somebody else", other, err1},
			bad{"signed with the public key as a secret", secret, err2}, bad{"cut", good[:len(good)-4], err},
			bad{"not signed", "eyJhbGciOiJub25lIn0." + parts[1] + ".", err},
			bad{"without its payload", parts[0] + ".." + parts[2], err})
	}
	var all []error
	for _, b := range program {
		_, a, err := l.bearer(b.token)
		all = append(all, refused("a program's token, "+b.name, a, errors.Join(b.err, err)))
	}
	for _, b := range person {
		a, err := l.login(b.token)
		all = append(all, refused("an identity token, "+b.name, a, errors.Join(b.err, err)))
	}
	l.Tokens = len(all)
	return errors.Join(all...)
}

// refused is nil where the answer is one to somebody who is nobody.
func refused(what string, a answer, err error) error {
	if err == nil && nobody(a.status) {
		return nil
	}
	return wrong(err, "%s: %d %s", what, a.status, a.text)
}
