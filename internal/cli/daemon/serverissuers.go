package daemon

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/oidc"
	"github.com/grange-project/grange/internal/pki"
)

// newIssuers reads by whom people sign in.
func newIssuers(c config.Server, log *slog.Logger) (*oidc.Issuers, error) {
	var all []*oidc.Issuer
	for _, name := range slices.Sorted(maps.Keys(c.Issuers)) {
		o, err := readIssuer(name, c.Issuers[name])
		if err != nil {
			return nil, err
		}
		all = append(all, oidc.NewIssuer(o, oidc.Options{Log: log}))
	}
	return oidc.NewIssuers(all...), nil
}

func readIssuer(name string, c config.Issuer) (oidc.Config, error) {
	o := oidc.Config{Name: name, Title: c.Title, URL: c.URL, ClientID: c.ClientID, DeviceClientID: c.DeviceClientID,
		Scopes: c.Scopes, Audiences: c.Audiences, NameClaim: c.NameClaim, CreateUsers: c.CreateUsers,
		UserInfo: c.UserInfo}
	if c.CA != "" {
		roots, err := pki.ReadCertificates(c.CA)
		if err != nil {
			return o, err
		}
		o.Roots = x509.NewCertPool()
		for _, r := range roots {
			o.Roots.AddCert(r)
		}
	}
	if c.ClientSecretFile == "" {
		return o, nil
	}
	text, err := os.ReadFile(c.ClientSecretFile)
	if o.Secret = strings.TrimSpace(string(text)); err == nil && o.Secret == "" {
		err = fmt.Errorf("%s is empty", c.ClientSecretFile)
	}
	if err != nil {
		return o, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadConfig,
			Message: "issuers." + name + ".client_secret_file", Err: err,
			Hint: "write the secret that the issuer gave for the client into this file, for the server's user alone"}
	}
	return o, nil
}
