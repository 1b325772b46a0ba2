package oidclab

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

// Browser follows links and sends forms, and keeps cookies, as browsers without scripts do.
type Browser struct {
	http.Client
	Server string // to which it says where a request comes from
}

// NewBrowser makes one that knows servers by these roots.
func NewBrowser(server string, roots *x509.CertPool) *Browser {
	jar, _ := cookiejar.New(nil) // fails for bad options alone
	b := &Browser{Server: server}
	b.Client = http.Client{Jar: jar, Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: roots}}}
	return b
}

// Stay has the browser show where it is sent, and not go there.
func (b *Browser) Stay() *Browser {
	other := *b
	other.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &other
}

// Page is what a browser was shown.
type Page struct {
	URL    *url.URL
	Status int
	Text   string
	Header http.Header
}

func (b *Browser) Get(to string) (Page, error) { return b.Send(http.MethodGet, to, nil, "none") }

// Send sends a request that a page of some site made: same-origin, cross-site, or none.
func (b *Browser) Send(method, to string, form url.Values, site string) (Page, error) {
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r, err := http.NewRequest(method, to, body)
	if err != nil {
		return Page{}, err
	}
	r.Header.Set("Sec-Fetch-Site", site)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	answer, err := b.Do(r)
	if err != nil {
		return Page{}, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	return Page{answer.Request.URL, answer.StatusCode, string(text), answer.Header}, err
}

// Cookie is one that the browser has of the server; "": it has none.
func (b *Browser) Cookie(name string) string {
	u, _ := url.Parse(b.Server)
	for _, c := range b.Jar.Cookies(u) {
		if c.Name == name {
			return c.Value
		}
	}
	return ""
}

func (b *Browser) SetCookie(name, value string) {
	u, _ := url.Parse(b.Server)
	b.Jar.SetCookies(u, []*http.Cookie{{Name: name, Value: value, Path: "/", Secure: true}})
}

// Form is the first one of a page.
func (p Page) Form() (to string, fields url.Values, ok bool) {
	form := regexp.MustCompile(`(?s)<form[^>]*action="([^"]*)".*?</form>`).FindStringSubmatch(p.Text)
	if form == nil {
		return "", nil, false
	}
	where, err := p.URL.Parse(html.UnescapeString(form[1]))
	if err != nil {
		return "", nil, false
	}
	return where.String(), fieldsOf(form[0]), true
}

// FormFor is the form that has a button to a path, or sends there itself: its fields as they are, without boxes that
// are not ticked.
func (p Page) FormFor(path string) (fields url.Values, ok bool) {
	for _, form := range regexp.MustCompile(`(?s)<form.*?</form>`).FindAllString(p.Text, -1) {
		if strings.Contains(form, `action="`+html.EscapeString(path)+`"`) {
			return fieldsOf(form), true
		}
	}
	return nil, false
}

// fieldsOf are the fields of a form but its choices and texts, which whoever sends it fills in.
func fieldsOf(form string) url.Values {
	attribute := regexp.MustCompile(`([a-z]+)="([^"]*)"`)
	fields := url.Values{}
	for _, input := range regexp.MustCompile(`<(?:input|button)[^>]*>`).FindAllString(form, -1) {
		has := map[string]string{}
		for _, a := range attribute.FindAllStringSubmatch(input, -1) {
			has[a[1]] = html.UnescapeString(a[2])
		}
		box := has["type"] == "checkbox" || has["type"] == "radio"
		if has["name"] != "" && (!box || strings.Contains(input, " checked")) {
			fields.Set(has["name"], has["value"])
		}
	}
	return fields
}

// mostForms is how many forms an issuer shows until somebody is signed in: a name, a consent, a device's code.
const mostForms = 8

// AnswerForms does what the issuer's pages ask for, as somebody, until there is no form of the issuer any more.
func (b *Browser) AnswerForms(p Page, issuer, as string) (Page, error) {
	for range mostForms {
		to, fields, ok := p.Form()
		if !ok || !strings.HasPrefix(p.URL.String(), issuer) {
			return p, nil
		}
		if _, asks := fields["login"]; asks {
			fields.Set("login", as)
			fields.Set("password", "any")
		}
		fields.Del("abort")
		var err error
		if p, err = b.Send(http.MethodPost, to, fields, "same-origin"); err != nil {
			return p, err
		}
	}
	return p, fmt.Errorf("the issuer asks without end: %.300s", p.Text)
}

// SignIn signs somebody in by the issuer, and returns where the browser is then.
func (b *Browser) SignIn(issuer, as, next string) (Page, error) {
	p, err := b.Get(b.Server + "/auth/start/org?next=" + url.QueryEscape(next))
	if err != nil {
		return p, err
	}
	if !strings.HasPrefix(p.URL.String(), issuer) {
		return p, fmt.Errorf("the browser was not sent to the issuer: %d %s %.300s", p.Status, p.URL, p.Text)
	}
	return b.AnswerForms(p, issuer, as)
}

// Back is where the issuer sends a browser when somebody has signed in there; the browser does not go.
func (b *Browser) Back(issuer, as string) (*url.URL, error) {
	other := *b
	var back *url.URL
	errStop := errors.New("stop")
	other.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), b.Server+"/auth/callback/") {
			back = r.URL
			return errStop
		}
		return nil
	}
	_, err := other.SignIn(issuer, as, "/")
	if back != nil {
		return back, nil
	}
	return nil, fmt.Errorf("the issuer did not send the browser back: %w", err)
}
