package imagesource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/reach"
)

// web is a file on a web server.
type web struct {
	url    string
	name   string
	client *http.Client
}

// over has a source of a web server that is reached as o says.
func over(o *reach.Outside) func(ref string) (Source, error) {
	c := client
	if o != nil {
		c = &http.Client{Transport: o.Over(webTransport), CheckRedirect: c.CheckRedirect}
	}
	return func(ref string) (Source, error) { return newWeb(ref, c) }
}

func newWeb(ref string, client *http.Client) (Source, error) {
	u, err := url.Parse(ref)
	switch {
	case err != nil:
		return nil, badSource(ref, err.Error())
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, badSource(ref, "its scheme is neither https nor http")
	case u.Host == "":
		return nil, badSource(ref, "it names no host")
	case u.User != nil:
		return nil, badSource(u.Redacted(), "a password in a URL ends up in logs; use a server that needs none")
	}
	name := path.Base(u.Path)
	if name == "/" || name == "." {
		return nil, badSource(ref, "it names no file")
	}
	return web{ref, name, client}, nil
}

const (
	answerTime  = 30 * time.Second // until a server's header is there
	mostForward = 5
)

// webTransport asks for bytes as they are stored: what a server compressed on the way would have other offsets.
var webTransport = &http.Transport{
	Proxy:                 http.ProxyFromEnvironment,
	DialContext:           (&net.Dialer{Timeout: answerTime}).DialContext,
	TLSHandshakeTimeout:   answerTime,
	ResponseHeaderTimeout: answerTime,
	DisableCompression:    true,
	IdleConnTimeout:       answerTime,
}

var client = &http.Client{
	Transport: webTransport,
	CheckRedirect: func(r *http.Request, via []*http.Request) error {
		switch {
		case len(via) > mostForward:
			return errors.New("the server redirects without end")
		case via[0].URL.Scheme == "https" && r.URL.Scheme != "https":
			return fmt.Errorf("the server redirects from https to %s", r.URL.Scheme)
		}
		return nil
	},
}

func (w web) Stat(ctx context.Context) (Info, error) {
	r, err := w.ask(ctx, "HEAD", nil)
	if err != nil {
		return Info{}, err
	}
	r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return Info{}, w.refused(r)
	}
	return Info{Name: w.name, Size: r.ContentLength, Version: validator(r)}, nil
}

func (w web) Open(ctx context.Context, version string, offset int64) (io.ReadCloser, error) {
	header := http.Header{}
	if offset > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	r, err := w.ask(ctx, "GET", header)
	if err != nil {
		return nil, err
	}
	switch {
	case r.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		err = ErrChanged
	case r.StatusCode != http.StatusOK && r.StatusCode != http.StatusPartialContent:
		err = w.refused(r)
	case validator(r) != version:
		err = ErrChanged
	case offset > 0 && r.StatusCode == http.StatusPartialContent && firstByte(r) != offset:
		err = sourceError(w.url, false, fmt.Errorf("the server sent another range: %s", r.Header.Get("Content-Range")))
	case offset > 0 && r.StatusCode == http.StatusOK: // it knows no ranges
		_, err = io.CopyN(io.Discard, r.Body, offset)
	}
	if err != nil {
		r.Body.Close()
		return nil, err
	}
	return r.Body, nil
}

func (w web) ask(ctx context.Context, method string, header http.Header) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, w.url, nil)
	if err != nil {
		return nil, badSource(w.url, err.Error())
	}
	if header != nil {
		r.Header = header
	}
	r.Header.Set("User-Agent", "grange")
	answer, err := w.client.Do(r)
	if err != nil {
		var in *url.Error
		if errors.As(err, &in) {
			err = in.Err // the address is in the message already
		}
		if errors.Is(err, reach.ErrLocal) {
			return nil, Local(w.url, err)
		}
		return nil, sourceError(w.url, false, cmp.Or(context.Cause(ctx), err))
	}
	return answer, nil
}

func (w web) refused(r *http.Response) error {
	// 408 and 429 ask to come again later; other 4xx will be said again.
	gone := r.StatusCode >= 400 && r.StatusCode < 500 && r.StatusCode != http.StatusRequestTimeout &&
		r.StatusCode != http.StatusTooManyRequests
	return sourceError(w.url, gone, errors.New("the server answers "+r.Status))
}

// validator is the strong ETag, or size and time of the last change, or "". A weak ETag promises equal meaning, not
// equal bytes.
func validator(r *http.Response) string {
	if tag := r.Header.Get("ETag"); tag != "" && !strings.HasPrefix(tag, "W/") {
		return tag
	}
	size := r.ContentLength
	if r.StatusCode == http.StatusPartialContent {
		_, whole, _ := strings.Cut(r.Header.Get("Content-Range"), "/")
		size, _ = strconv.ParseInt(whole, 10, 64)
	}
	if changed := r.Header.Get("Last-Modified"); changed != "" && size >= 0 {
		return fmt.Sprintf("%d %s", size, changed)
	}
	return ""
}

// firstByte is where a part of a file begins, -1 where the server does not say.
func firstByte(r *http.Response) int64 {
	text, _, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Content-Range"), "bytes "), "-")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}
