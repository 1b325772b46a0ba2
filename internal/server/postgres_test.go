package server

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/store/storetest/postgres"
)

// Two servers on one PostgreSQL are one farm: what one does the other knows, and neither takes what the other has.
func TestTwoServersOnPostgres(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a PostgreSQL")
	}
	pg, err := postgres.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := pg.Create(context.WithoutCancel(t.Context()), "farm", ""); err != nil {
		t.Fatal(err)
	}
	l := newLabOn(t, pg.URL("farm"))
	st, err := store.Open(t.Context(), pg.URL("farm"))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	other := New(Options{Store: st, Log: slog.New(slog.DiscardHandler), Now: l.clock, CAKeyFile: l.Links.CAKeyFile})
	follow, end := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { _ = other.follow(follow) })
	defer following.Wait()
	defer end()

	page, err := other.VMs.List(t.Context(), site, VMFilter{})
	if err != nil {
		t.Fatal(err)
	}
	watched := make(chan []Watched, 1)
	following.Go(func() {
		changes, _, err := other.Watch(follow, site, WatchFilter{}, page.Revision)
		if err != nil {
			t.Error(err)
		}
		watched <- changes
	})
	var all sync.WaitGroup
	var mu sync.Mutex
	outcomes := map[farm.Code]int{}
	for i := range 12 {
		all.Go(func() {
			s := l.Server
			if i%2 == 0 {
				s = other
			}
			r := web(fmt.Sprintf("w%d", i/2))
			r.Once = fmt.Sprint("key", i/2) // each request goes to both servers
			_, err := s.VMs.Create(context.Background(), ann, r)
			mu.Lock()
			defer mu.Unlock()
			outcomes[code(err)]++
		})
	}
	all.Wait()
	if outcomes[""] != 10 || outcomes[farm.CodeQuota] != 2 || l.count("alice") != 5 {
		t.Errorf("%v, %d VMs", outcomes, l.count("alice"))
	}
	if got := <-watched; len(got) == 0 || got[0].VM == nil {
		t.Errorf("%+v", got)
	}
}
