package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
)

// tenantsFarm has two projects on one network, which see nothing of each other: ann is in one, bob in the other. eve
// has no role.
const tenantsFarm = `
[cells.general]
broker = "grange"
default = true

[projects.one]
[projects.two]

[users.ann]
[users.bob]
[users.eve]

[[grants]]
user = "ann"
role = "member"
project = "one"

[[grants]]
user = "bob"
role = "member"
project = "two"

[shapes.tiny]
cpus = 1
memory = "192M"

[networks.shared]
bridge = "br0"
addresses = ["10.77.1.1-10.77.1.250/16"]
`

// tenants starts a farm with two projects; more is added to its file.
func (s *site) tenants(ctx context.Context, more ...string) (*standalone, error) {
	a, err := s.standalone(ctx)
	if err != nil {
		return nil, err
	}
	if err = os.WriteFile(a.path("farm.toml"), []byte(tenantsFarm+strings.Join(more, "")), 0o600); err == nil {
		_, err = a.grange(ctx, "apply", "-f", a.path("farm.toml"))
	}
	if err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// person is somebody of the fleet, who calls its API with a token.
type person struct {
	*standalone
	client *http.Client
	token  string
}

func (a *standalone) person(ctx context.Context, user string) (*person, error) {
	token, err := a.grange(ctx, "token", "create", "--user", user)
	return &person{a, a.client(), strings.TrimSpace(token)}, err
}

// call sends a request, and returns what the server answers.
func (p *person) call(ctx context.Context, method, path, body string) (status int, text string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, p.url()+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Authorization", "Bearer "+p.token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := p.client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(all), err
}

// inParallel runs a function n times, by some goroutines, until one returns an error.
func inParallel(goroutines, n int, do func(n int) error) error {
	var group sync.WaitGroup
	next, failed := make(chan int), make(chan error, goroutines)
	for range goroutines {
		group.Go(func() {
			for n := range next {
				if err := do(n); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	var err error
	for i := 0; i < n && err == nil; i++ {
		select {
		case next <- i:
		case err = <-failed:
		}
	}
	close(next)
	group.Wait()
	select {
	case err = <-failed:
	default:
	}
	return err
}
