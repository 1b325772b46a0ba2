package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// browser follows links and sends forms, and keeps cookies, as browsers do.
type browser struct {
	http.Client
	server string // to which it says where a request comes from
}

func newBrowser(server string, roots *x509.CertPool) *browser {
	jar, _ := cookiejar.New(nil) // fails for bad options alone
	b := &browser{server: server}
	b.Client = http.Client{Jar: jar, Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: roots}}}
	return b
}

// stay has the browser show where it is sent, and not go there.
func (b *browser) stay() *browser {
	other := *b
	other.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &other
}

// page is what a browser was shown.
type page struct {
	url    *url.URL
	status int
	text   string
	header http.Header
}

func (b *browser) get(to string) (page, error) { return b.send(http.MethodGet, to, nil, "none") }

// send sends a request that a page of some site made: same-origin, cross-site, or none.
func (b *browser) send(method, to string, form url.Values, site string) (page, error) {
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r, err := http.NewRequest(method, to, body)
	if err != nil {
		return page{}, err
	}
	r.Header.Set("Sec-Fetch-Site", site)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	answer, err := b.Do(r)
	if err != nil {
		return page{}, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	return page{answer.Request.URL, answer.StatusCode, string(text), answer.Header}, err
}

// cookie is one that the browser has of the server; "": it has none.
func (b *browser) cookie(name string) string {
	u, _ := url.Parse(b.server)
	for _, c := range b.Jar.Cookies(u) {
		if c.Name == name {
			return c.Value
		}
	}
	return ""
}

func (b *browser) setCookie(name, value string) {
	u, _ := url.Parse(b.server)
	b.Jar.SetCookies(u, []*http.Cookie{{Name: name, Value: value, Path: "/", Secure: true}})
}

// form is the first one of a page.
func (p page) form() (to string, fields url.Values, ok bool) {
	form := regexp.MustCompile(`(?s)<form[^>]*action="([^"]*)".*?</form>`).FindStringSubmatch(p.text)
	if form == nil {
		return "", nil, false
	}
	where, err := p.url.Parse(html.UnescapeString(form[1]))
	if err != nil {
		return "", nil, false
	}
	attribute := regexp.MustCompile(`([a-z]+)="([^"]*)"`)
	fields = url.Values{}
	for _, input := range regexp.MustCompile(`<(?:input|button)[^>]*>`).FindAllString(form[0], -1) {
		has := map[string]string{}
		for _, a := range attribute.FindAllStringSubmatch(input, -1) {
			has[a[1]] = html.UnescapeString(a[2])
		}
		if has["name"] != "" {
			fields.Set(has["name"], has["value"])
		}
	}
	return where.String(), fields, true
}

// mostForms is how many forms an issuer shows until somebody is signed in: a name, a consent, a device's code.
const mostForms = 8

// answerForms does what the issuer's pages ask for, as somebody, until there is no form of the issuer any more.
func (b *browser) answerForms(p page, issuer, as string) (page, error) {
	for range mostForms {
		to, fields, ok := p.form()
		if !ok || !strings.HasPrefix(p.url.String(), issuer) {
			return p, nil
		}
		if _, asks := fields["login"]; asks {
			fields.Set("login", as)
			fields.Set("password", "any")
		}
		fields.Del("abort")
		var err error
		if p, err = b.send(http.MethodPost, to, fields, "same-origin"); err != nil {
			return p, err
		}
	}
	return p, fmt.Errorf("the issuer asks without end: %.300s", p.text)
}

// signIn signs somebody in by the issuer, and returns where the browser is then.
func (b *browser) signIn(issuer, as, next string) (page, error) {
	p, err := b.get(b.server + "/auth/start/org?next=" + url.QueryEscape(next))
	if err != nil {
		return p, err
	}
	if !strings.HasPrefix(p.url.String(), issuer) {
		return p, fmt.Errorf("the browser was not sent to the issuer: %d %s %.300s", p.status, p.url, p.text)
	}
	return b.answerForms(p, issuer, as)
}

// back is where the issuer sends a browser when somebody has signed in there; the browser does not go.
func (b *browser) back(issuer, as string) (*url.URL, error) {
	other := *b
	var back *url.URL
	errStop := errors.New("stop")
	other.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), b.server+"/auth/callback/") {
			back = r.URL
			return errStop
		}
		return nil
	}
	_, err := other.signIn(issuer, as, "/")
	if back != nil {
		return back, nil
	}
	return nil, fmt.Errorf("the issuer did not send the browser back: %w", err)
}
