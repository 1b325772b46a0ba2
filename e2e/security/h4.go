package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/pki"
)

// How long an address misbehaves, and how often each second: bad logins, and as many enrolments.
const (
	floodTime = 15 * time.Second
	floodRate = 1000
)

// floodedHost: a host and a user whose address sends bad logins and enrolments go on, another host joins, and nothing
// is left of it.
func floodedHost(ctx context.Context, s *site) error {
	a, err := s.standalone(ctx)
	if err != nil {
		return err
	}
	defer a.close()
	token, err := a.grange(ctx, "token", "create", "--user", "ann")
	if err != nil {
		return err
	}
	token = strings.TrimSpace(token)
	long := len(a.log("server.log"))
	ctx, stop := context.WithTimeout(ctx, floodTime)
	defer stop()
	sent := a.flood(ctx, token[:len(token)-8]+"00000000")
	err = a.goesOn(ctx, token)
	stop()
	fmt.Printf("        %d requests of the flood were answered\n", sent())
	if err != nil {
		return err
	}
	if grown := len(a.log("server.log")) - long; grown > 64<<10 {
		return breach("the flood left %d bytes in the server's log", grown)
	}
	after, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer stop()
	if err := a.join(after, "second"); err != nil {
		return breach("after the flood: %v", err)
	}
	return nil
}

// flood shows a wrong token, and an unknown join token, until ctx ends; sent waits for its end, and says how much was
// answered.
func (a *standalone) flood(ctx context.Context, wrong string) (sent func() int64) {
	var answered atomic.Int64
	var all sync.WaitGroup
	client := a.client()
	join, _ := json.Marshal(fleet.EnrolRequest{Token: pki.NewJoinToken(&x509.Certificate{}).String(), Name: "third",
		Now: time.Now(), CSR: []byte("x")})
	for _, one := range []struct{ method, path, body string }{
		{"GET", "/v1/auth/whoami", ""}, {"POST", fleet.RouteEnrol, string(join)},
	} {
		due := make(chan struct{}, floodRate)
		go pace(ctx, due)
		for range 24 {
			all.Go(func() {
				for range due {
					r, _ := http.NewRequestWithContext(ctx, one.method, a.url()+one.path, strings.NewReader(one.body))
					r.Header.Set("Authorization", "Bearer "+wrong)
					if answer, err := client.Do(r); err == nil {
						io.Copy(io.Discard, answer.Body)
						answer.Body.Close()
						answered.Add(1)
					}
				}
			})
		}
	}
	return func() int64 { all.Wait(); return answered.Load() }
}

// pace makes floodRate requests due each second, and drops what nobody takes.
func pace(ctx context.Context, due chan<- struct{}) {
	defer close(due)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for range floodRate / 100 {
			select {
			case due <- struct{}{}:
			default:
			}
		}
	}
}

// goesOn has the host and the user ask until ctx ends; both are known at each request.
func (a *standalone) goesOn(ctx context.Context, token string) error {
	host, user := a.client(a.host), a.client()
	for n := 0; ; n++ {
		for _, one := range []struct {
			who          string
			client       *http.Client
			method, path string
		}{
			{"the host", host, "POST", fleet.RouteReport}, {"the user", user, "GET", "/v1/auth/whoami"},
		} {
			r, err := http.NewRequestWithContext(context.WithoutCancel(ctx), one.method, a.url()+one.path,
				strings.NewReader("{}"))
			if err != nil {
				return err
			}
			if one.client == user {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			answer, err := one.client.Do(r)
			if err != nil {
				return breach("%s gets no answer at request %d: %v", one.who, n, err)
			}
			text, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			if answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusTooManyRequests {
				return breach("%s is refused at request %d: %s %s", one.who, n, answer.Status, bytes.TrimSpace(text))
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}
