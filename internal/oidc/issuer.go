// Package oidc knows people by the issuers of their organizations, with OpenID Connect: it sends browsers there, and
// verifies what comes back, and the tokens that programs bring. It decides nothing about users and roles.
//
// An issuer may be down, slow, or lie. Each question to one has a bounded time and size, is asked by one caller at a
// time and not more often than pause, and what was learned before is used for keepKeys.
package oidc

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/grange-project/grange/internal/farm"
)

// Codes of errors about issuers; see docs/errors.md.
const (
	CodeIssuerDown farm.Code = "issuer-down" // it does not answer, or not as an issuer does
	CodeNoIssuer   farm.Code = "no-issuer"   // none of that name
)

// Config is an issuer as the site declares it.
type Config struct {
	Name     string // as logins and mappings have it
	Title    string // for people
	URL      string
	ClientID string
	Secret   string // "": a public client
	// DeviceClientID is a public client for `grange login`; "": command lines cannot sign in by this issuer.
	DeviceClientID string
	Scopes         []string // beside openid
	Audiences      []string // of tokens that programs bring; none: this issuer's are not taken
	NameClaim      string   // a new user is called by it
	CreateUsers    bool
	UserInfo       bool           // claims are fetched from there, too
	Roots          *x509.CertPool // of its TLS certificate; nil: the system's
}

const (
	askTime      = 10 * time.Second // for one question
	pause        = 10 * time.Second // between two attempts to learn an issuer's keys
	refreshAfter = 10 * time.Minute // keys are learned again
	refreshWait  = 2 * time.Second  // for keys that are newer than those that are known
	keepKeys     = 24 * time.Hour   // keys are used without the issuer
)

// Issuer is one that people sign in by.
type Issuer struct {
	Config
	log  *slog.Logger
	now  func() time.Time
	http *bounded

	mu     sync.Mutex
	last   *known   // nil: nothing was learned yet
	try    *attempt // the last one to learn it; nil: none
	failed bool     // the last one that ended
}

// known is what an issuer has said of itself.
type known struct {
	provider *oidc.Provider
	keys     keys
	named    bool // it says who it is with each answer to a browser
	at       time.Time
}

// attempt is one to learn about an issuer. err counts when done is closed.
type attempt struct {
	began time.Time
	done  chan struct{}
	err   error
}

// Options are what seldom needs a choice.
type Options struct {
	Log *slog.Logger
	Now func() time.Time // nil: time.Now
}

// NewIssuer makes an issuer. Nothing is asked yet: it may be down while the server starts.
func NewIssuer(c Config, o Options) *Issuer {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Issuer{Config: c, log: o.Log, now: o.Now, http: newBounded(c.Roots)}
}

// current is what is known of the issuer, learned now if it must be.
func (i *Issuer) current(ctx context.Context) (*known, error) {
	last := i.lastKnown()
	if last != nil && i.now().Sub(last.at) > refreshAfter {
		i.refresh(ctx)
		last = i.lastKnown()
	}
	if last != nil && i.now().Sub(last.at) < keepKeys {
		return last, nil
	}
	if err := i.learn(ctx); err != nil {
		return nil, err
	}
	return i.lastKnown(), nil
}

func (i *Issuer) lastKnown() *known {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.last
}

// refresh learns what may be old. A key may have been dropped in quiet hours, so it waits for the answer; not for long,
// and not for an issuer that did not answer the last time.
func (i *Issuer) refresh(ctx context.Context) {
	i.mu.Lock()
	failed := i.failed
	i.mu.Unlock()
	a := i.attempt()
	if failed {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, refreshWait)
	defer cancel()
	select {
	case <-a.done:
	case <-ctx.Done():
	}
}

// learn waits for an attempt.
func (i *Issuer) learn(ctx context.Context) error {
	a := i.attempt()
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return i.down(ctx.Err())
	}
}

// attempt is the one that goes on, or ended a moment ago, or a new one.
func (i *Issuer) attempt() *attempt {
	i.mu.Lock()
	defer i.mu.Unlock()
	if a := i.try; a != nil && (!a.ended() || i.now().Sub(a.began) < pause) {
		return a
	}
	a := &attempt{began: i.now(), done: make(chan struct{})}
	i.try = a
	go i.run(a)
	return a
}

func (a *attempt) ended() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

func (i *Issuer) run(a *attempt) {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	k, err := i.ask(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.failed = err != nil; i.failed {
		i.log.Warn("an issuer of users does not answer", "issuer", i.Name, "url", i.URL, "error", err)
		a.err = i.down(err)
	} else {
		i.last = k
	}
	close(a.done)
}

// ask reads the issuer's description and its keys.
func (i *Issuer) ask(ctx context.Context) (*known, error) {
	at := i.now()
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, i.http.client), i.URL)
	if err != nil {
		return nil, err
	}
	var doc struct {
		Keys  string `json:"jwks_uri"`
		Named bool   `json:"authorization_response_iss_parameter_supported"`
	}
	if err := provider.Claims(&doc); err != nil {
		return nil, err
	}
	all, err := i.http.keys(ctx, doc.Keys)
	if err != nil {
		return nil, fmt.Errorf("its keys: %w", err)
	}
	return &known{provider: provider, keys: all, named: doc.Named, at: at}, nil
}

func (i *Issuer) down(err error) error {
	var other *oidc.IssuerMismatchError
	hint := "try again in a minute; who has signed in goes on working, and tokens of grange still hold"
	if errors.As(err, &other) {
		hint = "url of [issuers." + i.Name + "] in server.toml must be, letter by letter, what the issuer calls itself"
	}
	return &farm.Error{Kind: farm.Unavailable, Code: CodeIssuerDown,
		Message: fmt.Sprintf("issuer %s does not answer as it should: %.300s", i.Name, farm.Printable(err.Error())),
		Hint:    hint}
}

// oauth is the issuer's OAuth client for browsers.
func (i *Issuer) oauth(k *known, redirect string) *oauth2.Config {
	return &oauth2.Config{ClientID: i.ClientID, ClientSecret: i.Secret, Endpoint: k.provider.Endpoint(),
		RedirectURL: redirect, Scopes: i.AllScopes()}
}

// AllScopes are the scopes that are asked for.
func (i *Issuer) AllScopes() []string { return append([]string{oidc.ScopeOpenID}, i.Scopes...) }

// Issuers are all that a site declares.
type Issuers struct{ all []*Issuer }

// NewIssuers takes issuers in the order in which people see them.
func NewIssuers(all ...*Issuer) *Issuers { return &Issuers{all} }

// All are all of them.
func (s *Issuers) All() []*Issuer {
	if s == nil {
		return nil
	}
	return s.all
}

// Named is the one with a name.
func (s *Issuers) Named(name string) (*Issuer, error) {
	var names []string
	for _, i := range s.All() {
		if i.Name == name {
			return i, nil
		}
		names = append(names, i.Name)
	}
	hint := "there are " + strings.Join(names, ", ")
	if len(names) == 0 {
		hint = "none is declared: see [issuers.NAME] in docs/guide/login.md; sign in by a token"
	}
	return nil, &farm.Error{Kind: farm.NotFound, Code: CodeNoIssuer, Message: fmt.Sprintf("no issuer %.80q", name),
		Hint: hint}
}

// Claims are claims that nobody has verified, of the issuer with a name, or of the one that they name themselves: to
// say what they would give, and for nothing else.
func (s *Issuers) Claims(name string, all map[string]any) (farm.Claims, error) {
	url, _ := all["iss"].(string)
	for _, i := range s.All() {
		if name == "" && i.URL == url {
			name = i.Name
		}
	}
	i, err := s.Named(name)
	if err != nil {
		return farm.Claims{}, err
	}
	subject, _ := all["sub"].(string)
	return farm.Claims{Issuer: i.Name, Subject: subject, All: all, NameClaim: i.NameClaim, Create: i.CreateUsers}, nil
}
