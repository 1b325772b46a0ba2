package access

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/atomicfile"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/oidc"
	"github.com/grange-project/grange/internal/pki"
)

// sessionPrefix begins what a sign-in writes: a token that somebody made is not overwritten.
const sessionPrefix = "grs_"

// loginCommands are the commands that sign in and out.
type loginCommands struct{ *app.App }

func (a loginCommands) loginCommand() *cobra.Command {
	var issuer, ca string
	cmd := &cobra.Command{Use: "login", Short: "Sign in by an issuer of your organization", Args: cobra.NoArgs,
		Long: `Sign in by an issuer of your organization: a browser, on this machine or another one, asks
you, and this command waits for it. The session is written to the file that the other
commands take their token from: $GRANGE_TOKEN_FILE, or token_file of client.toml. It ends
by itself; grange logout ends it before.`,
		Example: "  grange login\n  GRANGE_TOKEN_FILE=~/.grange-session grange login --issuer cern",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, file, err := a.client()
			if err != nil {
				return err
			}
			return a.login(cmd.Context(), c, file, issuer, ca)
		}}
	cmd.Flags().StringVar(&issuer, "issuer", "", "`NAME` of the issuer (default: the only one)")
	cmd.Flags().StringVar(&ca, "issuer-ca", "", "`FILE` with the authority of the issuer's TLS certificate (default: "+
		"the system's authorities)")
	return cmd
}

// client is a client that shows no token, and the file that one is written to.
func (a loginCommands) client() (*fleet.Client, string, error) {
	found, file, err := a.ServerWithoutToken()
	if err != nil {
		return nil, "", err
	}
	if file == "" {
		return nil, "", app.Usage("set `token_file` in client.toml, or name one in $GRANGE_TOKEN_FILE",
			"there is no file for the session")
	}
	c, err := a.NewFleet(found)
	return c, file, err
}

func (a loginCommands) login(ctx context.Context, c *fleet.Client, file, name, ca string) error {
	if err := mayWrite(file); err != nil {
		return err
	}
	issuer, err := chosen(ctx, c, name)
	if err != nil {
		return err
	}
	roots, err := authorities(ca)
	if err != nil {
		return err
	}
	token, err := oidc.Device(ctx, issuer.Name, issuer.URL, issuer.ClientID, issuer.Scopes, roots, a.showCode)
	if err != nil {
		return err
	}
	answer, err := c.Login(ctx, fleet.LoginRequest{Issuer: issuer.Name, Token: token})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	if err := atomicfile.Write(file, []byte(answer.Secret+"\n"), 0o600); err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(answer.Session)
	}
	_, err = fmt.Fprintf(a.Out, "signed in as %s until %s at the latest\n", answer.Session.User,
		answer.Session.Limit.Local().Format(time.DateTime))
	return err
}

func (a loginCommands) showCode(where, code, whole string) {
	fmt.Fprintf(a.Err, "Open %s in a browser, and enter the code %s\n", farm.Printable(where), farm.Printable(code))
	if whole != "" {
		fmt.Fprintf(a.Err, "or open %s\n", farm.Printable(whole))
	}
}

// mayWrite refuses a file with something else than a session.
func mayWrite(file string) error {
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) || err == nil && (len(text) == 0 || strings.HasPrefix(string(text), sessionPrefix)) {
		return nil
	}
	if err != nil {
		return err
	}
	return &farm.Error{Kind: farm.Conflict, Code: app.CodeBadToken, Message: file + " has a token, and no session",
		Hint: "move it away if nobody needs it, or name another file in GRANGE_TOKEN_FILE"}
}

// chosen is the issuer with a name; "": the only one for command lines.
func chosen(ctx context.Context, c *fleet.Client, name string) (fleet.Issuer, error) {
	all, err := c.Issuers(ctx)
	if err != nil {
		return fleet.Issuer{}, err
	}
	var names []string
	var found []fleet.Issuer
	for _, i := range all {
		if i.ClientID == "" {
			continue
		}
		names = append(names, i.Name)
		if name == "" || name == i.Name {
			found = append(found, i)
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	return fleet.Issuer{}, &farm.Error{Kind: farm.Invalid, Code: oidc.CodeNoIssuer,
		Message: "command lines sign in by: " + farm.Printable(cmp.Or(strings.Join(names, ", "), "nobody")),
		Hint:    "name one with --issuer; or use a token of `grange token create`"}
}

func authorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	certificates, err := pki.ReadCertificates(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, c := range certificates {
		pool.AddCert(c)
	}
	return pool, nil
}

func (a loginCommands) logoutCommand() *cobra.Command {
	return &cobra.Command{Use: "logout", Short: "End the session of grange login", Args: cobra.NoArgs,
		Long: "End the session on the server, and delete the file that it was in.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, file, err := a.ServerWithoutToken()
			if err != nil {
				return err
			}
			text, err := os.ReadFile(file)
			found.Token = strings.TrimSpace(string(text))
			if err != nil || !strings.HasPrefix(found.Token, sessionPrefix) {
				return &farm.Error{Kind: farm.NotFound, Code: app.CodeBadToken,
					Message: "there is no session of grange login",
					Hint:    "one is in $GRANGE_TOKEN_FILE, or in token_file of client.toml"}
			}
			c, err := a.NewFleet(found)
			if err != nil {
				return err
			}
			if err := c.Logout(cmd.Context()); err != nil && !ended(err) {
				return err
			}
			return os.Remove(file)
		}}
}

// ended reports whether the server does not know a session any more: then there is nothing left to end.
func ended(err error) bool {
	return app.CodeOf(err) == string(farm.CodeNotKnown)
}
