package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grange-project/grange/e2e/oidclab"
	"github.com/grange-project/grange/e2e/serverlab"
)

const (
	floodTime    = 10 * time.Second
	floodPerS    = 1100 // a few are late
	floodClients = 16
	mostGood     = 50 // an address is held to fewer sign-ins by an issuer than a flood has
)

// flood sends a thousand bad logins a second, of each kind that there is, while people sign in at the same server, from
// the same address.
func (l *lab) flood(ctx context.Context) error {
	unknownKey, err := oidclab.NewKey()
	if err != nil {
		return err
	}
	forged, err := oidclab.SignWith(unknownKey, "ES256", "JWT", l.provider.Claims("ann", oidclab.Audience, nil))
	if err != nil {
		return err
	}
	nobody, err := l.provider.Sign(l.provider.Claims("nobody", oidclab.Audience, nil))
	if err != nil {
		return err
	}
	tries := []func() (answer, error){
		func() (answer, error) { return l.login(forged) },
		func() (answer, error) { _, a, err := l.bearer(forged); return a, err },
		func() (answer, error) { _, a, err := l.bearer(nobody); return a, err },
		func() (answer, error) { _, a, err := l.bearer("grt_0123456789abcdef_0123456789abcdef"); return a, err },
	}
	ctx, stop := context.WithTimeout(ctx, floodTime)
	defer stop()
	turns := make(chan int)
	go func() {
		defer close(turns)
		began, n := time.Now(), 0
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			for due := int(floodPerS * time.Since(began).Seconds()); n < due && ctx.Err() == nil; n++ {
				turns <- n
			}
		}
	}()
	var sent atomic.Int64
	var passed atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for range floodClients {
		all.Go(func() {
			for n := range turns {
				a, err := tries[n%len(tries)]()
				sent.Add(1)
				if err == nil && a.status < 400 {
					passed.Add(1)
				}
			}
		})
	}
	took, bad := l.goodLogins(ctx)
	all.Wait()
	l.BadPerS = float64(sent.Load()) / time.Since(began).Seconds()
	l.Good, l.GoodFailed = len(took), len(bad)
	if len(took) > 0 {
		slices.Sort(took)
		l.GoodMS = float64(took[len(took)/2].Microseconds()) / 1000
	}
	if passed.Load() > 0 {
		bad = append(bad, fmt.Errorf("%d bad ones passed", passed.Load()))
	}
	if len(took) == 0 {
		bad = append(bad, errors.New("nobody could sign in"))
	}
	return errors.Join(bad...)
}

// goodLogins signs people in, one after the other, until ctx ends.
func (l *lab) goodLogins(ctx context.Context) (took []time.Duration, bad []error) {
	for n := 0; ctx.Err() == nil && n < mostGood; n++ {
		began := time.Now()
		token, err := l.provider.Sign(l.provider.Claims("ann", oidclab.DeviceID, map[string]any{"jti": fmt.Sprint("flood", n)}))
		if err != nil {
			return took, append(bad, err)
		}
		a, err := l.login(token)
		if err != nil || a.status != http.StatusOK {
			bad = append(bad, wrong(err, "sign-in %d: %d %s", n, a.status, a.text))
		}
		if n%10 == 0 { // and now and then in a browser
			b := l.browser()
			_, err := b.SignIn(l.provider.Issuer, "ann", "/auth/login")
			if who, status, asked := whoami(b); err != nil || asked != nil || who.User != "ann" {
				bad = append(bad, wrong(errors.Join(err, asked), "in a browser: %d", status))
			}
		}
		took = append(took, time.Since(began))
	}
	return took, bad
}

// awaitOf waits for what the server learns by itself.
func awaitOf(ctx context.Context, ask func() error) error {
	return serverlab.Await(ctx, time.Minute, ask)
}
