package services

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/policy"
)

var all = []config.Service{
	{Name: "db", Network: "unix", Address: "/nonexistent/db", Port: 5432, Whom: policy.Rule{Groups: []string{"atlas"}}},
	{Name: "squid", Network: "tcp", Address: "127.0.0.1:1", Port: 3128, Variables: []string{"A=1", "http_proxy=p"}},
}

func TestFor(t *testing.T) {
	for _, c := range []struct {
		who  policy.Who
		err  error
		want string
	}{
		{policy.Who{User: "ada", Groups: []string{"atlas"}}, nil, "db squid"},
		{policy.Who{User: "bob"}, nil, "squid"},
		{policy.Who{}, errors.New("nobody knows"), ""},
	} {
		got, err := For(all, func([]policy.Rule) (policy.Who, error) { return c.who, c.err })
		if strings.Join(got, " ") != c.want || !errors.Is(err, c.err) {
			t.Errorf("%+v: %q, %v", c.who, got, err)
		}
	}
	open := all[1:]
	if got, err := For(open, nil); err != nil || len(got) != 1 {
		t.Errorf("a service for everybody: %q, %v", got, err)
	}
	if got := Of(all, []string{"squid", "removed since"}); len(got) != 1 || got[0].Name != "squid" {
		t.Errorf("of a newer configuration: %v", got)
	}
}

func TestOffer(t *testing.T) {
	job := func() *guest.Job {
		return &guest.Job{Env: []string{"A=own"}, Files: []guest.File{{Path: "/facts", Content: []byte("X=1\n")}}}
	}
	j := job()
	if w := Offer(j, nil, false, "/facts"); w != "" || len(j.Env) != 1 {
		t.Errorf("no services: %q, %v", w, j.Env)
	}
	if w := Offer(j, all, false, "/facts"); w == "" || len(j.Env) != 1 || len(j.Services) != 0 {
		t.Errorf("an older guest: %q, %v", w, j.Env)
	}
	w := Offer(j, all, true, "/facts")
	const list = "db=127.0.0.1:5432 squid=127.0.0.1:3128"
	if want := []string{"A=own", "GRANGE_SERVICES=" + list, "http_proxy=p"}; w != "" || !slices.Equal(j.Env, want) {
		t.Errorf("%q, %q", w, j.Env)
	}
	if got := string(j.Files[0].Content); got != "X=1\nSERVICES="+list+"\n" || len(j.Services) != 2 {
		t.Errorf("%q, %v", got, j.Services)
	}
	if Port(nil, nil) != nil || len(Port([]string{"db"}, func(n string) string { return "/run/" + n })) != 1 {
		t.Error("a port that is not for services")
	}
}

// TestFollow ends when its VM has gone, or the agent stops; a guest that never answers stops neither.
func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "port")
	Follow(t.Context(), path, nil) // there is no VM
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { Follow(ctx, path, nil); close(done) }()
	if _, err := l.Accept(); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-done
}

func TestCheck(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	up := config.Service{Name: "up", Network: "tcp", Address: l.Addr().String(), Port: 80}
	got := check([]config.Service{all[0], up})
	if got[0].Problem == "" || got[1].Problem != "" || got[1].Port != 80 || got[1].Connect != up.Address {
		t.Errorf("%+v", got)
	}
	if _, err := connect(t.Context(), []config.Service{up}, 81); !errors.Is(err, errNoService) {
		t.Errorf("a port that is not declared: %v", err)
	}
}

// TestManyAsk: a service is connected to once for all who ask at a time, and again when the configuration has changed.
func TestManyAsk(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	came := make(chan net.Conn, 1000)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				close(came)
				return
			}
			came <- conn
		}
	}()
	up := config.Service{Name: "up", Network: "tcp", Address: l.Addr().String(), Port: 80}
	var c Checker
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			if got := c.Check([]config.Service{up}); len(got) != 1 || got[0].Problem != "" {
				t.Errorf("%+v", got)
			}
		})
	}
	all.Wait()
	other := up
	other.Name = "other"
	if got := c.Check([]config.Service{up, other}); len(got) != 2 || got[1].Name != "other" {
		t.Errorf("the configuration has changed, and the answer is %+v", got)
	}
	l.Close()
	connections := 0
	for conn := range came {
		conn.Close()
		connections++
	}
	if connections < 1 || connections > 3 {
		t.Errorf("%d connections for 101 questions about two configurations", connections)
	}
}
