// Command login signs people and programs in at a real `grange server`, by a real issuer, oidc-provider from npm: in a
// browser, on a command line, and by tokens; then as those do who are nobody: with claims that give nothing, tokens
// that do not hold, answers that are of others, and a thousand bad tries a second beside good ones. The last line is
// JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/oidclab"
	"github.com/grange-project/grange/e2e/serverlab"
)

// figures are the line at the end.
type figures struct {
	Failed     int     `json:"failed"`
	Passed     int     `json:"passed"`
	Combined   int     `json:"claims_and_roles"`     // combinations of the matrix
	Tokens     int     `json:"bad_tokens"`           // kinds of them
	BadPerS    float64 `json:"bad_logins_per_s"`     // beside which good ones went on
	Good       int     `json:"good_logins"`          // meanwhile
	GoodFailed int     `json:"good_logins_failed"`   // of those
	GoodMS     float64 `json:"good_login_ms_median"` // of those
	Seconds    float64 `json:"seconds"`
}

// lab is a server, and an issuer that it declares.
type lab struct {
	*figures
	server   *serverlab.Server
	provider *oidclab.Provider
	dir      string
}

// cases in their order: rotated and down restart the issuer.
var cases = []struct {
	name string
	try  func(*lab, context.Context) error
}{
	{"browser", (*lab).inBrowser}, {"command-line", (*lab).onCommandLine}, {"matrix", (*lab).matrix},
	{"tokens", (*lab).badTokens}, {"replay", (*lab).replay}, {"mix-up", (*lab).mixUp}, {"csrf", (*lab).crossSite},
	{"fixation", (*lab).fixation}, {"taken-away", (*lab).takenAway}, {"flood", (*lab).flood},
	{"rotated", (*lab).rotated}, {"down", (*lab).down},
}

func main() {
	binary := flag.String("grange", "bin/grange", "the `PROGRAM`")
	only := flag.String("only", "", "cases to try, separated by commas; none: all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	f, began := figures{}, time.Now()
	if err := f.all(ctx, *binary, strings.FieldsFunc(*only, func(r rune) bool { return r == ',' })); err != nil {
		f.result("suite", err)
	}
	f.Seconds = time.Since(began).Round(100 * time.Millisecond).Seconds()
	text, _ := json.Marshal(f)
	fmt.Println(string(text))
	if f.Failed > 0 {
		os.Exit(1)
	}
}

func (f *figures) result(name string, err error) {
	if err == nil {
		f.Passed++
		fmt.Println("ok  ", name)
		return
	}
	f.Failed++
	fmt.Printf("FAIL %s\n        %s\n", name, strings.ReplaceAll(err.Error(), "\n", "\n        "))
}

func (f *figures) all(ctx context.Context, binary string, only []string) error {
	dir, err := os.MkdirTemp("", "grange-login-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l := &lab{figures: f, dir: dir}
	if l.server, err = serverlab.New(dir, binary); err != nil {
		return err
	}
	fmt.Println("installing and starting the issuer")
	if l.provider, err = oidclab.New(ctx, dir, l.server.URL+"/auth/callback/org", accounts); err != nil {
		return err
	}
	if err := l.provider.Start(ctx); err != nil {
		return err
	}
	defer func() { l.provider.End() }()
	defer l.server.Close()
	if err := errors.Join(os.WriteFile(l.server.Path("client.secret"), []byte(oidclab.Secret), 0o600),
		l.server.Start(ctx, l.config())); err != nil {
		return err
	}
	if err := l.server.Apply(ctx, farmFile); err != nil {
		return err
	}
	if err := l.provider.Trust(l.server.CAFile()); err != nil {
		return err
	}
	known := map[string]bool{}
	for _, c := range cases {
		known[c.name] = true
		if len(only) > 0 && !slices.Contains(only, c.name) {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		f.result(c.name, c.try(l, ctx))
	}
	return unknown(only, known)
}

func unknown(only []string, known map[string]bool) error {
	for _, name := range only {
		if !known[name] {
			return fmt.Errorf("no case is called %q", name)
		}
	}
	return nil
}

// config declares the issuer, and one that answers nobody: it could only send browsers elsewhere.
func (l *lab) config() string {
	return fmt.Sprintf(`
[issuers.org]
title = "The Organization"
url = %q
client_id = %q
client_secret_file = %q
device_client_id = %q
scopes = ["profile"]
audiences = [%q]
ca = %q

[issuers.other]
url = "https://127.0.0.1:1"
client_id = "grange"
`, l.provider.Issuer, oidclab.ClientID, l.server.Path("client.secret"), oidclab.DeviceID, oidclab.Audience, l.provider.CAFile())
}

// accounts are those of the issuer's people, with what it says of them.
var accounts = map[string]map[string]any{
	"ann":    {"preferred_username": "ann", "groups": []string{"atlas", "it"}},
	"bob":    {"preferred_username": "bob", "groups": []string{"ATLAS"}},
	"nobody": {"preferred_username": "nobody", "groups": []string{"atlas"}},
}

const farmFile = `
[cells.general]
broker = "grange"
default = true

[projects.atlas]
[projects.cms]

[users.ann]
logins = ["org:ann"]
[users.bob]
logins = ["org:bob"]
[users.robot]
logins = ["org:robot"]

[[grants]]
user = "robot"
role = "admin"

[[mappings]]
issuer = "org"
claim = "groups"
value = "atlas"
role = "member"
project = "atlas"
[[mappings]]
issuer = "org"
claim = "wlcg.groups"
value = "/cms/production"
role = "operator"
project = "cms"
[[mappings]]
issuer = "org"
claim = "eduperson_entitlement"
value = "urn:geant:example.org:group:it#issuer.example.org"
role = "operator"
cell = "general"
[[mappings]]
issuer = "org"
claim = "scope"
value = "compute.read"
role = "reader"
[[mappings]]
issuer = "org"
claim = "realm_access.roles"
value = "grange-admin"
role = "admin"
[[mappings]]
issuer = "other"
claim = "groups"
value = "everybody"
role = "admin"
`
