package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// Issuer signs people in, with OpenID Connect.
type Issuer struct {
	URL      string `toml:"url"`
	Title    string `toml:"title"` // for people; "": the name
	ClientID string `toml:"client_id"`
	// ClientSecretFile has the client's secret; "": a public client.
	ClientSecretFile string   `toml:"client_secret_file"`
	DeviceClientID   string   `toml:"device_client_id"` // a public client, of `grange login`; "": none
	Scopes           []string `toml:"scopes"`           // beside openid
	CA               string   `toml:"ca"`               // file of who vouches for its TLS certificate; "": the system's
	Audiences        []string `toml:"audiences"`        // of tokens that programs bring; none: they are not taken
	NameClaim        string   `toml:"name_claim"`       // new users are called by it
	CreateUsers      bool     `toml:"create_users"`     // who signs in for the first time becomes a user
	UserInfo         bool     `toml:"userinfo"`         // claims are fetched from there, too
}

func (i Issuer) check(name string) error {
	if err := farm.CheckName("issuer", name); err != nil {
		return err
	}
	u, err := url.Parse(i.URL)
	switch {
	case err != nil, u.Scheme != "https", u.Host == "", u.RawQuery != "", u.Fragment != "":
		return fmt.Errorf("issuers.%s.url: %q is not an https URL", name, i.URL)
	case i.ClientID == "":
		return fmt.Errorf("issuers.%s.client_id: not set: register the server as a client of the issuer", name)
	case i.CreateUsers && i.NameClaim == "":
		return fmt.Errorf("issuers.%s.create_users: needs name_claim, by which new users are called", name)
	case slices.ContainsFunc(i.Audiences, func(a string) bool { return a == i.ClientID || a == i.DeviceClientID }):
		return fmt.Errorf("issuers.%s.audiences: a client's ID is the audience of identity tokens, which are for "+
			"sign-ins; name another audience for programs", name)
	}
	for key, path := range map[string]string{"client_secret_file": i.ClientSecretFile, "ca": i.CA} {
		if path != "" && !filepath.IsAbs(path) {
			return fmt.Errorf("issuers.%s.%s: %q is not an absolute path", name, key, path)
		}
	}
	return nil
}
