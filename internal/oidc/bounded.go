package oidc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/go-jose/go-jose/v4"
)

const (
	maxAnswer = 1 << 20 // bytes: descriptions, keys and tokens have some thousands
	maxKeys   = 100     // of one issuer
)

// bounded asks an issuer: by TLS alone, within a time and a size, and wherever it was configured: redirects are not
// followed.
type bounded struct{ client *http.Client }

func newBounded(roots *x509.CertPool) *bounded {
	dialer := net.Dialer{Timeout: askTime}
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		TLSHandshakeTimeout: askTime, ResponseHeaderTimeout: askTime, MaxResponseHeaderBytes: 64 << 10,
		MaxConnsPerHost: 8, MaxIdleConnsPerHost: 2, IdleConnTimeout: askTime, ForceAttemptHTTP2: true}
	return &bounded{&http.Client{Transport: limited{t}, Timeout: askTime,
		CheckRedirect: func(r *http.Request, _ []*http.Request) error {
			return fmt.Errorf("it sends elsewhere, to %s, which is not followed", r.URL.Host)
		}}}
}

// limited refuses plain HTTP, and ends answers that are too long.
type limited struct{ next http.RoundTripper }

func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" {
		return nil, fmt.Errorf("%.200s is not an https URL", r.URL)
	}
	answer, err := l.next.RoundTrip(r)
	if err == nil {
		answer.Body = http.MaxBytesReader(nil, answer.Body, maxAnswer)
	}
	return answer, err
}

// keys are those that an issuer signs with.
type keys []jose.JSONWebKey

// keys reads an issuer's keys. Those of a kind that is not known are passed over.
func (b *bounded) keys(ctx context.Context, url string) (keys, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := b.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, errors.New(answer.Status)
	}
	return parseKeys(text)
}

func parseKeys(text []byte) (all keys, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, err
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("it has %d keys; at most %d", len(set.Keys), maxKeys)
	}
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if err := json.Unmarshal(raw, &key); err != nil || !key.Valid() || !key.IsPublic() || key.Use == "enc" {
			continue
		}
		all = append(all, key)
	}
	if len(all) == 0 {
		return nil, errors.New("it has no key of a kind that is known")
	}
	return all, nil
}
