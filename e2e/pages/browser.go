package main

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/grange-project/grange/e2e/oidclab"
)

// chromium is Debian's.
const chromium = "/usr/bin/chromium"

// stepTime bounds what is waited for in a page, caseTime a whole case.
const (
	stepTime = 60 * time.Second
	caseTime = 6 * time.Minute
)

// browser is one Chromium, and what it complains about.
type browser struct {
	ctx    context.Context
	cancel []func()
	server *server
	axe    string
	seen   complaints
}

// complaints are what a browser says of pages.
type complaints struct {
	mu                   sync.Mutex
	csp, foreign, errors []string
}

func (c *complaints) add(to *[]string, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*to = append(*to, fmt.Sprintf(format, args...))
}

func (c *complaints) all() complaints {
	c.mu.Lock()
	defer c.mu.Unlock()
	return complaints{csp: slices.Clone(c.csp), foreign: slices.Clone(c.foreign), errors: slices.Clone(c.errors)}
}

func startBrowser(ctx context.Context, dir string, s *server, issuer *oidclab.Provider) (*browser, error) {
	b := &browser{server: s}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(chromium),
		chromedp.NoSandbox, chromedp.UserDataDir(filepath.Join(dir, "chromium")),
		chromedp.Flag("ignore-certificate-errors-spki-list", s.SPKI+","+issuer.SPKI()),
		chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("hide-scrollbars", true),
		chromedp.WSURLReadTimeout(2*time.Minute))
	ctx, cancel := chromedp.NewExecAllocator(ctx, options...)
	b.cancel = append(b.cancel, cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	b.cancel = append(b.cancel, cancel)
	b.ctx = ctx
	return b, b.begin(ctx)
}

// begin readies a tab: what goes wrong in it is counted, and ann is signed in there.
func (b *browser) begin(ctx context.Context) error {
	if err := chromedp.Do(ctx, call(network.Enable, network.EnableParams{}), call(log.Enable, cdp.Empty{}),
		call(runtime.Enable, cdp.Empty{})); err != nil {
		return err
	}
	return chromedp.Do(ctx, b.listening(), b.signIn(b.server.token))
}

// signIn has the browser known as a token's user.
func (b *browser) signIn(token string) step {
	return call(network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{
		Headers: network.Headers{"Authorization": "Bearer " + token}})
}

func (b *browser) close() {
	for _, cancel := range slices.Backward(b.cancel) {
		cancel()
	}
}

// tab is another tab, of its own.
func (b *browser) tab() (context.Context, func(), error) {
	ctx, cancel := chromedp.NewContext(b.ctx)
	err := b.begin(ctx) // which the timeout must not bound: the tab would end with it
	ctx, timeout := context.WithTimeout(ctx, caseTime)
	return ctx, func() { timeout(); cancel() }, err
}

// tabAs is a tab of another user than ann.
func (b *browser) tabAs(token string) (context.Context, func(), error) {
	ctx, end, err := b.tab()
	if err == nil {
		err = chromedp.Do(ctx, b.signIn(token))
	}
	return ctx, end, err
}

// strangersTab is a tab in which nobody has signed in, with cookies of its own, so that an issuer knows nobody there
// either; the pages of others may do as they like in it.
func (b *browser) strangersTab() (context.Context, func(), error) {
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	err := chromedp.Do(ctx, call(network.Enable, network.EnableParams{}))
	ctx, timeout := context.WithTimeout(ctx, caseTime)
	return ctx, func() { timeout(); cancel() }, err
}

func (b *browser) listening() step {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error { return b.listen(ctx) })
}

// listen counts what the browser says of pages.
func (b *browser) listen(ctx context.Context) error {
	return chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			u, err := url.Parse(e.Request.URL)
			if err != nil || u.Scheme == "data" || u.Scheme == "about" || u.Scheme == "chrome-error" {
				return
			}
			if own := strings.HasPrefix(e.Request.URL, b.server.URL+"/"); !own {
				b.seen.add(&b.seen.foreign, "%s asks for %s", e.DocumentURL, e.Request.URL)
			}
		case *log.EventEntryAdded:
			b.logged(e.Entry)
		case *runtime.EventExceptionThrown:
			b.seen.add(&b.seen.errors, "%s: %s", e.ExceptionDetails.URL, e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeAssert {
				b.seen.add(&b.seen.errors, "console: %v", e.Args)
			}
		}
	})
}

func (b *browser) logged(e *log.Entry) {
	switch {
	case strings.Contains(e.Text, "Content Security Policy"):
		b.seen.add(&b.seen.csp, "%s: %s", e.URL, e.Text)
	case e.Level != log.EntryLevelError:
	case e.Source == log.EntrySourceNetwork && strings.Contains(e.Text, "status of 4"):
		// a refusal that a test asks for; a page that should be there is looked at by its title
	default:
		b.seen.add(&b.seen.errors, "%s: %s", e.URL, e.Text)
	}
}
