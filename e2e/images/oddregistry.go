package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"
)

// oddRegistry does below each name of oddities what no honest registry does, with the images of one that is honest.
// elsewhere is another server, by plain http.
func oddRegistry(honest, elsewhere string, over <-chan struct{}) http.Handler {
	behind := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: honest})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		oddity, _, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/")
		if !ok {
			behind.ServeHTTP(w, r)
			return
		}
		r.URL.Path = "/v2/" + strings.TrimPrefix(r.URL.Path, "/v2/"+oddity+"/")
		q := question{w, r, behind, elsewhere, strings.Contains(r.URL.Path, "/blobs/"), over}
		if odd, known := oddities[oddity]; known {
			odd(q)
			return
		}
		q.honest()
	})
}

// question is one of a client.
type question struct {
	w         http.ResponseWriter
	r         *http.Request
	behind    http.Handler
	elsewhere string
	blob      bool // or a manifest
	over      <-chan struct{}
}

func (q question) honest() { q.behind.ServeHTTP(q.w, q.r) }

// answer is what an honest registry says.
func (q question) answer() []byte {
	rec := httptest.NewRecorder()
	q.behind.ServeHTTP(rec, q.r)
	for k, v := range rec.Header() {
		if k != "Content-Length" {
			q.w.Header()[k] = v
		}
	}
	return rec.Body.Bytes()
}

// changed answers with other bytes.
func (q question) changed() {
	b := q.answer()
	if len(b) > 0 {
		b[len(b)/2] ^= 1
	}
	q.w.Write(b)
}

// onlyFor does it to what is a blob, or to what is none.
func onlyFor(blob bool, odd func(question)) func(question) {
	return func(q question) {
		if q.blob == blob {
			odd(q)
		} else {
			q.honest()
		}
	}
}

var oddities = map[string]func(question){
	"other-blobs":     onlyFor(true, question.changed),
	"other-manifests": onlyFor(false, question.changed),
	"cut-blobs": onlyFor(true, func(q question) {
		b := q.answer()
		q.w.Header().Set("Content-Length", fmt.Sprint(len(b)))
		q.w.Write(b[:len(b)/2])
		panic(http.ErrAbortHandler)
	}),
	"short-blobs": onlyFor(true, func(q question) { b := q.answer(); q.w.Write(b[:len(b)/2]) }),
	"long-blobs": onlyFor(true, func(q question) {
		q.w.Write(q.answer())
		io.CopyN(q.w, zeros{}, 1<<30)
	}),
	"many-layers": onlyFor(false, func(q question) {
		b := q.answer()
		at := bytes.Index(b, []byte(`"layers":[`)) + len(`"layers":[`)
		end := bytes.IndexByte(b[at:], '}') + at
		first := append(bytes.Clone(b[at:end+1]), ',')
		q.w.Write(bytes.Join([][]byte{b[:at], bytes.Repeat(first, 1000), b[at:]}, nil))
	}),
	"huge-manifests": onlyFor(false, func(q question) {
		q.answer()
		io.WriteString(q.w, `{"schemaVersion":2,"annotations":{"x":"`)
		for range 1 << 10 {
			if _, err := q.w.Write(bytes.Repeat([]byte("x"), 1<<20)); err != nil {
				return
			}
		}
	}),
	"no-manifest": onlyFor(false, func(q question) { io.WriteString(q.w, "<html>please log in</html>") }),
	"broken":      func(q question) { q.w.WriteHeader(http.StatusInternalServerError) },
	"busy": func(q question) {
		q.w.Header().Set("Retry-After", "3600")
		q.w.WriteHeader(http.StatusTooManyRequests)
	},
	"circle": func(q question) { http.Redirect(q.w, q.r, q.r.RequestURI, http.StatusTemporaryRedirect) },
	"file":   func(q question) { http.Redirect(q.w, q.r, "file:///etc/shadow", http.StatusTemporaryRedirect) },
	"elsewhere": onlyFor(true, func(q question) {
		http.Redirect(q.w, q.r, q.elsewhere+q.r.URL.Path, http.StatusTemporaryRedirect)
	}),
	"silent-blobs": onlyFor(true, func(q question) { <-q.over }),
	"silent":       func(q question) { <-q.over },
	"slow": onlyFor(true, func(q question) {
		q.w = &slow{ResponseWriter: q.w}
		q.honest()
	}),
	"breaks-once": onlyFor(true, breaksOnce()),
}

// breaksOnce breaks off the first answer, as a registry does that is restarted.
func breaksOnce() func(question) {
	broken := make(chan struct{}, 1)
	return func(q question) {
		select {
		case broken <- struct{}{}:
			b := q.answer()
			q.w.Header().Set("Content-Length", fmt.Sprint(len(b)))
			q.w.Write(b[:len(b)/2])
			time.Sleep(50 * time.Millisecond)
			panic(http.ErrAbortHandler)
		default:
			q.honest()
		}
	}
}

// tokenRegistry lets in who has a token of the service at realm; "": its own.
func tokenRegistry(honest, realm string) http.Handler {
	behind := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: honest})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/token":
			io.WriteString(w, `{"token":"anonymous"}`)
		case r.Header.Get("Authorization") == "Bearer anonymous":
			behind.ServeHTTP(w, r)
		default:
			at := cmp.Or(realm, "http://"+r.Host+"/token")
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s",service="test"`, at))
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
}
