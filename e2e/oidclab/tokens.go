package oidclab

import (
	"maps"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Claims are those of a token of the issuer that holds for an hour, with more or others; nil takes one out.
func (p *Provider) Claims(subject, audience string, more map[string]any) map[string]any {
	now := time.Now()
	all := map[string]any{"iss": p.Issuer, "sub": subject, "aud": audience, "iat": now.Unix(), "nbf": now.Unix(),
		"exp": now.Add(time.Hour).Unix()}
	maps.Copy(all, more)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	return all
}

// Sign makes a token as the issuer would.
func (p *Provider) Sign(claims map[string]any) (string, error) {
	return SignWith(p.Private, jose.ES256, "JWT", claims)
}

// SignWith makes a token of a kind with some key.
func SignWith(key any, algorithm jose.SignatureAlgorithm, kind string, claims map[string]any) (string, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key},
		(&jose.SignerOptions{}).WithType(jose.ContentType(kind)))
	if err != nil {
		return "", err
	}
	return jwt.Signed(signer).Claims(claims).Serialize()
}
