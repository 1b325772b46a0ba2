package oidc

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/grange-project/grange/internal/farm"
)

// maxToken bounds a token, in bytes: the header of a request has less.
const maxToken = 32 << 10

// algorithms are those by which an issuer may sign: with a key of its own that others can only verify. None, and
// secrets that both sides have, are not among them, whatever a token or a description says.
var algorithms = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256,
	oidc.PS384, oidc.PS512, oidc.EdDSA}

func joseAlgorithms() (all []jose.SignatureAlgorithm) {
	for _, a := range algorithms {
		all = append(all, jose.SignatureAlgorithm(a))
	}
	return all
}

// verify returns a token of the issuer that holds: signed by one of its keys, in its time, for one of some audiences.
func (i *Issuer) verify(ctx context.Context, text string, audiences ...string) (*oidc.IDToken, error) {
	if len(text) > maxToken {
		return nil, i.refuse(fmt.Errorf("it has more than %v", farm.Bytes(maxToken)))
	}
	k, err := i.current(ctx)
	if err != nil {
		return nil, err
	}
	signed := &signatures{issuer: i, known: k}
	verifier := oidc.NewVerifier(i.URL, signed, &oidc.Config{SkipClientIDCheck: true,
		SupportedSigningAlgs: algorithms, Now: i.now})
	token, err := verifier.Verify(ctx, text)
	var late *oidc.TokenExpiredError
	switch {
	case signed.down != nil:
		return nil, signed.down
	case errors.As(err, &late):
		return nil, i.refuse(fmt.Errorf("it has expired at %s", late.Expiry.UTC().Format(time.RFC3339)))
	case err != nil:
		return nil, i.refuse(err)
	case !slices.ContainsFunc(token.Audience, func(a string) bool { return slices.Contains(audiences, a) }):
		return nil, i.refuse(fmt.Errorf("it is for %q, and not for this server", token.Audience))
	}
	return token, nil
}

func (i *Issuer) refuse(err error) error {
	return &farm.Error{Kind: farm.Denied, Code: farm.CodeNotKnown,
		Message: fmt.Sprintf("the token of issuer %s does not hold: %.300s", i.Name,
			farm.Printable(strings.TrimPrefix(err.Error(), "oidc: "))),
		Hint: "get a new one of the issuer, for this server; compare its clock with the server's"}
}

// signatures verifies by the keys that are known, and by newer ones where a token names one that is not.
type signatures struct {
	issuer *Issuer
	known  *known
	down   error // why newer ones could not be had
}

// VerifySignature is what go-oidc asks of a set of keys.
func (s *signatures) VerifySignature(ctx context.Context, text string) ([]byte, error) {
	signed, err := jose.ParseSigned(text, joseAlgorithms())
	if err != nil || len(signed.Signatures) != 1 {
		return nil, errors.New("it is not signed as it should be")
	}
	id := signed.Signatures[0].Header.KeyID
	named := s.known.keys.named(id)
	if len(named) == 0 {
		if err := s.issuer.learn(ctx); err != nil {
			s.down = err
			return nil, err
		}
		newer, err := s.issuer.current(ctx)
		if err != nil {
			s.down = err
			return nil, err
		}
		named = newer.keys.named(id)
	}
	return (&oidc.StaticKeySet{PublicKeys: named}).VerifySignature(ctx, text)
}

// named are the keys with an ID; all where a token names none.
func (all keys) named(id string) (some []crypto.PublicKey) {
	for _, k := range all {
		if id == "" || k.KeyID == id {
			some = append(some, k.Key)
		}
	}
	return some
}

// claims is what a token says.
func (i *Issuer) claims(token *oidc.IDToken) (farm.Claims, error) {
	out := farm.Claims{Issuer: i.Name, Subject: token.Subject, NameClaim: i.NameClaim}
	if _, err := farm.Login(i.Name, token.Subject); err != nil {
		return out, i.refuse(err)
	}
	if err := token.Claims(&out.All); err != nil {
		return out, i.refuse(err)
	}
	return out, nil
}

// maxAge is how long after its making an identity token makes a session.
const maxAge = 10 * time.Minute

// Identity is what an identity token of a command line says: one that was made for that, and just now.
func (i *Issuer) Identity(ctx context.Context, text string) (farm.Claims, error) {
	if i.DeviceClientID == "" {
		return farm.Claims{}, i.refuse(errors.New("command lines do not sign in by this issuer"))
	}
	token, err := i.verify(ctx, text, i.DeviceClientID)
	if err != nil {
		return farm.Claims{}, err
	}
	if err := i.meant(token, i.DeviceClientID); err != nil {
		return farm.Claims{}, err
	}
	if err := identity(text, token); err != nil {
		return farm.Claims{}, i.refuse(err)
	}
	if age := i.now().Sub(token.IssuedAt); age > maxAge {
		return farm.Claims{}, i.refuse(fmt.Errorf("it was made %v ago: sign in again", age.Round(time.Second)))
	}
	return i.signIn(token)
}

// meant refuses a token that another client was given, and that names ours beside it.
func (i *Issuer) meant(token *oidc.IDToken, client string) error {
	var more struct {
		Party string `json:"azp"`
	}
	if err := token.Claims(&more); err != nil {
		return i.refuse(err)
	}
	if len(token.Audience) > 1 && more.Party == "" || more.Party != "" && more.Party != client {
		return i.refuse(fmt.Errorf("it was given to %q", more.Party))
	}
	return nil
}

// identity refuses a token that lets a program do something in somebody's name: it does not say that somebody is there.
// Some issuers give both kinds the same audience, and each has its own way to tell them apart.
func identity(text string, token *oidc.IDToken) error {
	signed, err := jose.ParseSigned(text, joseAlgorithms())
	if err != nil {
		return err
	}
	kind, _ := signed.Signatures[0].Header.ExtraHeaders[jose.HeaderType].(string)
	said := map[string]any{}
	if err := token.Claims(&said); err != nil {
		return err
	}
	for claim, want := range map[string]string{"typ": "ID", "token_use": "id"} {
		if text, there := said[claim]; there && text != want {
			return fmt.Errorf("it is no identity token: its %s is %.40q", claim, fmt.Sprint(text))
		}
	}
	for _, claim := range []string{"scope", "scp", "client_id"} {
		if _, there := said[claim]; there {
			return fmt.Errorf("it is no identity token: it has a claim %s", claim)
		}
	}
	if kind = strings.ToLower(kind); strings.TrimPrefix(kind, "application/") == "at+jwt" {
		return fmt.Errorf("it is no identity token: its type is %s", kind)
	}
	return nil
}

// signIn is what a token says of somebody who signs in, and may become a user by that.
func (i *Issuer) signIn(token *oidc.IDToken) (farm.Claims, error) {
	c, err := i.claims(token)
	c.Create = i.CreateUsers
	return c, err
}

// IsBearer reports whether a text may be a token of an issuer: three parts, the first a JSON object.
func IsBearer(text string) bool {
	return strings.HasPrefix(text, "ey") && strings.Count(text, ".") == 2
}

// Bearer is what the token of a program says. Whose it is follows from itself; nobody but issuers that are declared is
// asked.
func (s *Issuers) Bearer(ctx context.Context, text string) (farm.Claims, error) {
	url := issuerOf(text)
	for _, i := range s.All() {
		if i.URL != url || len(i.Audiences) == 0 {
			continue
		}
		token, err := i.verify(ctx, text, i.Audiences...)
		if err != nil {
			return farm.Claims{}, err
		}
		c, err := i.claims(token)
		if err == nil {
			err = i.wlcg(c.All)
		}
		return c, err
	}
	return farm.Claims{}, &farm.Error{Kind: farm.Denied, Code: farm.CodeNotKnown,
		Message: fmt.Sprintf("this server takes no tokens of issuer %.200q", farm.Printable(url)),
		Hint:    "use one of grange, of `grange token create`; or an administrator declares the issuer, with audiences"}
}

// issuerOf is what a token that nobody has verified says of its issuer.
func issuerOf(text string) string {
	if len(text) > maxToken {
		return ""
	}
	signed, err := jose.ParseSigned(text, joseAlgorithms())
	if err != nil {
		return ""
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(signed.UnsafePayloadWithoutVerification(), &claims) != nil {
		return ""
	}
	return claims.Issuer
}

// wlcg refuses a token of a WLCG profile whose words are not known.
func (i *Issuer) wlcg(claims map[string]any) error {
	version, there := claims["wlcg.ver"]
	if text, ok := version.(string); there && (!ok || !strings.HasPrefix(text, "1.")) {
		return i.refuse(fmt.Errorf("it is of version %.20v of the WLCG profile; this server knows 1", version))
	}
	return nil
}
