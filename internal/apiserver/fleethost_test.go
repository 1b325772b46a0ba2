package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// hosts is one page.
func (l *lab) hosts(query url.Values) fleet.Page[fleet.Host] {
	l.t.Helper()
	var page fleet.Page[fleet.Host]
	answer, body := l.ask("GET", "/v1/hosts?"+query.Encode(), "")
	if err := json.Unmarshal([]byte(body), &page); err != nil || answer.StatusCode != http.StatusOK {
		l.t.Fatal(answer.Status, err, body)
	}
	return page
}

// Pages of hosts are the list cut into pieces: each but the last is full, and names the one behind which the next
// begins.
func TestPagesOfHosts(t *testing.T) {
	l := newLab(t)
	l.update(func(tx *store.Tx) error {
		err := tx.PutCell(farm.Cell{Name: "west"}.WithDefaults())
		for n := range 12 {
			name := fmt.Sprintf("wn-%02d", 11-n)
			h := farm.Host{ID: "id-" + name, Name: name, Cell: []string{"east", "west"}[n%2], Enrolled: time.Now(),
				Seen: time.Now(), Closed: n%3 == 0}
			if err == nil {
				err = tx.InsertHost(h)
			}
		}
		return err
	})
	for _, c := range []struct {
		query url.Values
		want  int
	}{{url.Values{}, 12}, {url.Values{"cell": {"west"}}, 6}, {url.Values{"state": {"closed"}}, 4},
		{url.Values{"name": {"wn-0*"}}, 10},
		{url.Values{"name": {"id-wn-03"}}, 1},
		{url.Values{"cell": {"east"}, "state": {"open"}, "name": {"wn-?[13579]"}}, 4},
		{url.Values{"state": {"fenced"}}, 0}} {
		all := l.hosts(c.query)
		if len(all.Items) != c.want || all.Next != "" || all.Revision == 0 {
			t.Errorf("%v: %d hosts, next %q, revision %d", c.query, len(all.Items), all.Next, all.Revision)
		}
		for _, size := range []int{1, 2, 3, 12} {
			found, query := []fleet.Host{}, url.Values{"limit": {fmt.Sprint(size)}}
			for key, value := range c.query {
				query[key] = value
			}
			for {
				page := l.hosts(query)
				found = append(found, page.Items...)
				if page.Next == "" {
					break
				}
				if len(page.Items) != size || page.Next != page.Items[size-1].Name || len(found) == c.want {
					t.Errorf("%v: %d hosts of %d, next %q", query, len(page.Items), c.want, page.Next)
				}
				query.Set("after", page.Next)
			}
			if d := cmp.Diff(all.Items, found); d != "" {
				t.Errorf("%v: %s", query, d)
			}
		}
	}
}
