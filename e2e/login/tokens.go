package main

import (
	"maps"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// claims are those of a token of the issuer that holds for an hour, with more or others; nil takes one out.
func (p *provider) claims(subject, audience string, more map[string]any) map[string]any {
	now := time.Now()
	all := map[string]any{"iss": p.Issuer, "sub": subject, "aud": audience, "iat": now.Unix(), "nbf": now.Unix(),
		"exp": now.Add(time.Hour).Unix()}
	maps.Copy(all, more)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	return all
}

// sign makes a token as the issuer would.
func (p *provider) sign(claims map[string]any) (string, error) {
	return signWith(p.key, jose.ES256, "JWT", claims)
}

func signWith(key any, algorithm jose.SignatureAlgorithm, kind string, claims map[string]any) (string, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key},
		(&jose.SignerOptions{}).WithType(jose.ContentType(kind)))
	if err != nil {
		return "", err
	}
	return jwt.Signed(signer).Claims(claims).Serialize()
}
