package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/chromedp/chromedp"

	"github.com/grange-project/grange/e2e/oidclab"
)

// startIssuer is where people sign in: it knows ann.
func startIssuer(ctx context.Context, dir string, s *server) (*oidclab.Provider, error) {
	p, err := oidclab.New(ctx, dir, s.URL+"/auth/callback/org", map[string]map[string]any{"ann": {}})
	if err != nil {
		return nil, err
	}
	return p, errors.Join(p.Start(ctx), os.WriteFile(s.Path("client.secret"), []byte(oidclab.Secret), 0o600))
}

// declared is the issuer in the server's configuration.
func declared(p *oidclab.Provider, secretFile string) string {
	return fmt.Sprintf("[issuers.org]\ntitle = \"The Organization\"\nurl = %q\nclient_id = %q\nclient_secret_file = %q\n"+
		"ca = %q\n", p.Issuer, oidclab.ClientID, secretFile, p.CAFile())
}

// byIssuer signs ann in by the issuer's own pages.
func (b *browser) byIssuer() step {
	return chromedp.Steps(b.visit("/vms"), text("h1", "Sign in to grange"), press(`a[href^="/auth/start/org"]`),
		visible("[name=login]"), write("[name=login]", "ann"), write("[name=password]", "any"), press("[type=submit]"),
		visible("[type=submit]"), press("[type=submit]"), // that grange may know who it is
		text("h1", "VMs"), text(".who", "ann"))
}

// signedIn goes by the issuer's pages to one's VMs, and out again.
func (t *test) signedIn() error {
	ctx, end, err := t.browser.strangersTab()
	if err != nil {
		return err
	}
	defer end()
	return chromedp.Do(ctx, looks[0].step(),
		t.browser.byIssuer(), t.browser.visit("/vms?of=mine"), text("h1", "My VMs"), press(".who button"),
		text("h1", "Sign in to grange"), t.browser.visit("/vms"), text("h1", "Sign in to grange"))
}
