package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/e2e/oidclab"
)

// sessionCookie is what a browser has that is signed in.
const sessionCookie = "__Host-grange"

func (l *lab) browser() *oidclab.Browser { return oidclab.NewBrowser(l.server.URL, l.provider.Roots) }

// whoami is whom the server takes a browser for.
func whoami(b *oidclab.Browser) (who fleet.Identity, status int, err error) {
	p, err := b.Get(b.Server + "/v1/auth/whoami")
	if err == nil && p.Status == http.StatusOK {
		err = json.Unmarshal([]byte(p.Text), &who)
	}
	return who, p.Status, err
}

// wrong is what was seen in the place of what should have been, and the error that came with it, if one did.
func wrong(err error, format string, args ...any) error {
	return errors.Join(fmt.Errorf(format, args...), err)
}

// nobody reports whether an answer is one to somebody whom the server does not know. One address is not told forever
// what is wrong.
func nobody(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusTooManyRequests
}

// roles are grants in a form that can be compared.
func roles(who fleet.Identity) (all []string) {
	for _, g := range who.Grants {
		all = append(all, strings.TrimRight(g.Role+" "+g.Project+g.Cell, " "))
	}
	slices.Sort(all)
	return all
}

// inBrowser signs in and out.
func (l *lab) inBrowser(context.Context) error {
	b := l.browser()
	if p, err := b.Get(l.server.URL + "/auth/login"); err != nil || !strings.Contains(p.Text, "The Organization") {
		return wrong(err, "the page: %d %s", p.Status, p.Text)
	}
	p, err := b.SignIn(l.provider.Issuer, "ann", "/v1/auth/whoami")
	if err != nil || p.URL.Path != "/v1/auth/whoami" || p.Status != http.StatusOK {
		return wrong(err, "signed in, and led to %s: %d %s", p.URL, p.Status, p.Text)
	}
	who, _, err := whoami(b)
	if got := roles(who); err != nil || who.User != "ann" || !slices.Equal(got, []string{"member atlas"}) {
		return wrong(err, "ann is %+v, with %q", who, got)
	}
	session := b.Cookie(sessionCookie)
	if p, err := b.Stay().Send(http.MethodPost, l.server.URL+"/auth/logout", url.Values{}, "same-origin"); err != nil ||
		p.Status != http.StatusSeeOther {
		return wrong(err, "signing out: %d %s", p.Status, p.Text)
	}
	b.SetCookie(sessionCookie, session)
	if _, status, err := whoami(b); status != http.StatusUnauthorized {
		return wrong(err, "with the session of before: %d", status)
	}
	stranger := l.browser()
	p, err = stranger.SignIn(l.provider.Issuer, "nobody", "/")
	if err != nil || p.Status != http.StatusForbidden && p.Status != http.StatusUnauthorized ||
		!strings.Contains(p.Text, "org:nobody") || stranger.Cookie(sessionCookie) != "" {
		return wrong(err, "somebody without a user: %d %s", p.Status, p.Text)
	}
	return nil
}

// onCommandLine signs in with `grange login`, while somebody enters the code in a browser.
func (l *lab) onCommandLine(ctx context.Context) error {
	config := l.server.Path("config")
	client := fmt.Sprintf("server = %q\nca = %q\ntoken_file = %q\n", l.server.URL, l.server.CAFile(),
		l.server.Path("session"))
	if err := errors.Join(os.MkdirAll(filepath.Join(config, "grange"), 0o700),
		os.WriteFile(filepath.Join(config, "grange", "client.toml"), []byte(client), 0o600)); err != nil {
		return err
	}
	env := append(os.Environ(), "XDG_CONFIG_HOME="+config)
	cmd := exec.CommandContext(ctx, l.server.Binary, "login", "--issuer", "org", "--issuer-ca", l.provider.CAFile())
	cmd.Env = env
	var out bytes.Buffer
	cmd.Stdout = &out
	says, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	said, lines := "", bufio.NewScanner(says)
	for lines.Scan() {
		said += lines.Text() + "\n"
		where, ok := strings.CutPrefix(lines.Text(), "or open ")
		if !ok {
			continue
		}
		b := l.browser()
		p, err := b.Get(where)
		if err == nil {
			p, err = b.AnswerForms(p, l.provider.Issuer, "ann")
		}
		if err != nil {
			cmd.Process.Kill()
			return errors.Join(wrong(err, "the code: %d %s", p.Status, p.Text), cmd.Wait())
		}
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "signed in as ann") {
		return wrong(err, "grange login: %s%s", &out, said)
	}
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, l.server.Binary, args...)
		cmd.Env = env
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	if text, err := run("auth", "whoami", "--json"); err != nil || !strings.Contains(text, `"member"`) {
		return fmt.Errorf("whoami: %w: %s", err, text)
	}
	if text, err := run("logout"); err != nil {
		return fmt.Errorf("logout: %w: %s", err, text)
	}
	if text, err := run("auth", "whoami"); err == nil {
		return fmt.Errorf("signed out, and known: %s", text)
	}
	return nil
}

// answer is what a program is told.
type answer struct {
	status int
	text   string
}

// ask sends a request with a token.
func (l *lab) ask(method, path, token, body string) (answer, error) {
	r, err := http.NewRequest(method, l.server.URL+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	got, err := l.server.Client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	return answer{got.StatusCode, string(text)}, err
}

// bearer is whom the server takes a program for.
func (l *lab) bearer(token string) (who fleet.Identity, a answer, err error) {
	a, err = l.ask(http.MethodGet, "/v1/auth/whoami", token, "")
	if err == nil && a.status == http.StatusOK {
		err = json.Unmarshal([]byte(a.text), &who)
	}
	return who, a, err
}

// replay: what was good once is not good again, in whatever form.
func (l *lab) replay(context.Context) error {
	b := l.browser()
	back, err := b.Back(l.provider.Issuer, "ann")
	if err != nil {
		return err
	}
	trip := b.Cookie("__Host-grange-trip")
	if p, err := b.Stay().Get(back.String()); err != nil || p.Status != http.StatusSeeOther {
		return wrong(err, "the first time: %d %s", p.Status, p.Text)
	}
	thief := l.browser()
	thief.SetCookie("__Host-grange-trip", trip)
	if p, err := thief.Stay().Get(back.String()); err != nil || !nobody(p.Status) ||
		thief.Cookie(sessionCookie) != "" {
		return wrong(err, "the code once more: %d %s", p.Status, p.Text)
	}
	claims := l.provider.Claims("ann", oidclab.DeviceID, nil)
	for n := range 3 {
		token, err := l.provider.Sign(claims) // another signature each time
		if err != nil {
			return err
		}
		a, err := l.login(token)
		if err != nil || n == 0 && a.status != http.StatusOK || n > 0 && !nobody(a.status) {
			return wrong(err, "the identity token, time %d: %d %s", n+1, a.status, a.text)
		}
	}
	return nil
}

func (l *lab) login(token string) (answer, error) {
	body, err := json.Marshal(fleet.LoginRequest{Issuer: "org", Token: token})
	if err != nil {
		return answer{}, err
	}
	return l.ask(http.MethodPost, "/v1/auth/login", "", string(body))
}

// mixUp: the answer of one issuer is none of another, and none without what the browser began with.
func (l *lab) mixUp(context.Context) error {
	for name, change := range map[string]func(*oidclab.Browser, *url.URL, url.Values){
		"by the way of another issuer": func(_ *oidclab.Browser, u *url.URL, _ url.Values) { u.Path = "/auth/callback/other" },
		"without the issuer's name":    func(_ *oidclab.Browser, _ *url.URL, q url.Values) { q.Del("iss") },
		"with another's name":          func(_ *oidclab.Browser, _ *url.URL, q url.Values) { q.Set("iss", "https://127.0.0.1:1") },
		"with another state":           func(_ *oidclab.Browser, _ *url.URL, q url.Values) { q.Set("state", "x") },
		"in a browser that began none": func(b *oidclab.Browser, _ *url.URL, _ url.Values) { *b = *l.browser() },
	} {
		b := l.browser()
		back, err := b.Back(l.provider.Issuer, "ann")
		if err != nil {
			return err
		}
		q := back.Query()
		change(b, back, q)
		back.RawQuery = q.Encode()
		p, err := b.Stay().Get(back.String())
		if err != nil || !nobody(p.Status) || b.Cookie(sessionCookie) != "" {
			return wrong(err, "%s: %d %s", name, p.Status, p.Text)
		}
	}
	return nil
}

// crossSite: pages of other sites do nothing with a session.
func (l *lab) crossSite(context.Context) error {
	b := l.browser()
	if _, err := b.SignIn(l.provider.Issuer, "ann", "/auth/login"); err != nil {
		return err
	}
	for _, path := range []string{"/auth/logout", "/auth/login", "/vms/new", "/v1/vms", "/v1/tokens"} {
		for _, site := range []string{"cross-site", "same-site"} {
			p, err := b.Stay().Send(http.MethodPost, l.server.URL+path, url.Values{"name": {"x"}}, site)
			if err != nil || p.Status != http.StatusForbidden {
				return wrong(err, "a form of another site (%s) for %s: %d %s", site, path, p.Status, p.Text)
			}
		}
	}
	if who, status, err := whoami(b); err != nil || who.User != "ann" {
		return wrong(err, "the session did not outlive them: %d", status)
	}
	return nil
}

// fixation: a session that somebody planted is not the one of whoever signs in.
func (l *lab) fixation(context.Context) error {
	planter := l.browser()
	if _, err := planter.SignIn(l.provider.Issuer, "bob", "/auth/login"); err != nil {
		return err
	}
	planted := planter.Cookie(sessionCookie)
	b := l.browser()
	b.SetCookie(sessionCookie, planted)
	if _, err := b.SignIn(l.provider.Issuer, "ann", "/auth/login"); err != nil {
		return err
	}
	who, _, err := whoami(b)
	if err != nil || who.User != "ann" || b.Cookie(sessionCookie) == planted {
		return wrong(err, "signed in as ann, and is %+v", who)
	}
	if who, status, err := whoami(planter); err != nil || who.User == "ann" {
		return wrong(err, "whoever planted it is %+v, %d", who, status)
	}
	return nil
}

// takenAway: a session ends with the login that it was made by.
func (l *lab) takenAway(ctx context.Context) error {
	b := l.browser()
	if _, err := b.SignIn(l.provider.Issuer, "bob", "/auth/login"); err != nil {
		return err
	}
	if who, status, err := whoami(b); err != nil || who.User != "bob" || len(who.Grants) > 0 {
		return wrong(err, "bob is %+v, %d", who, status)
	}
	if _, err := l.server.Grange(ctx, "user", "set", "bob", "--without-login", "org:bob"); err != nil {
		return err
	}
	if _, status, err := whoami(b); err != nil || !nobody(status) {
		return wrong(err, "without the login: %d", status)
	}
	_, err := l.server.Grange(ctx, "user", "set", "bob", "--login", "org:bob")
	return err
}

// rotated: with the issuer's next key its new tokens hold at once, and those of the key before do not any more.
func (l *lab) rotated(ctx context.Context) error {
	claims := l.provider.Claims("ann", oidclab.Audience, nil)
	old, err := l.provider.Sign(claims)
	if err != nil {
		return err
	}
	if _, a, err := l.bearer(old); err != nil || a.status != http.StatusOK {
		return wrong(err, "before: %d %s", a.status, a.text)
	}
	l.provider.End()
	if err := errors.Join(l.provider.Rotate(), l.provider.Start(ctx)); err != nil {
		return err
	}
	fresh, err := l.provider.Sign(claims)
	if err != nil {
		return err
	}
	// the server asks an issuer no more often than every ten seconds
	err = awaitOf(ctx, func() error {
		_, a, err := l.bearer(fresh)
		if err == nil && a.status != http.StatusOK {
			err = fmt.Errorf("by the next key: %d %s", a.status, a.text)
		}
		return err
	})
	if err != nil {
		return err
	}
	if _, a, err := l.bearer(old); err != nil || !nobody(a.status) {
		return wrong(err, "by the key before: %d %s", a.status, a.text)
	}
	return nil
}

// down: without the issuer those who have signed in go on, programs too, and others are told why they cannot.
func (l *lab) down(context.Context) error {
	b := l.browser()
	if _, err := b.SignIn(l.provider.Issuer, "ann", "/auth/login"); err != nil {
		return err
	}
	token, err := l.provider.Sign(l.provider.Claims("ann", oidclab.Audience, nil))
	if err != nil {
		return err
	}
	back, err := l.browser().Back(l.provider.Issuer, "ann")
	if err != nil {
		return err
	}
	l.provider.End()
	if who, status, err := whoami(b); err != nil || who.User != "ann" {
		return wrong(err, "a session without the issuer: %d", status)
	}
	if _, a, err := l.bearer(token); err != nil || a.status != http.StatusOK {
		return wrong(err, "a program without the issuer: %d %s", a.status, a.text)
	}
	late := l.browser()
	to, err := late.Stay().Get(l.server.URL + "/auth/start/org")
	if err != nil {
		return err
	}
	sent, err := url.Parse(to.Header.Get("Location"))
	if err != nil {
		return err
	}
	q := back.Query()
	q.Set("state", sent.Query().Get("state"))
	began := time.Now()
	p, err := late.Stay().Get(l.server.URL + "/auth/callback/org?" + q.Encode())
	if err != nil || p.Status != http.StatusServiceUnavailable || !strings.Contains(p.Text, "does not answer") {
		return wrong(err, "a sign-in without the issuer: %d after %v: %s", p.Status, time.Since(began), p.Text)
	}
	return nil
}
