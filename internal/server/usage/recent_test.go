package usage

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/usage"
)

// TestBoundedRead: looking for what is rare ends, and goes on where it ended until it is found.
func TestBoundedRead(t *testing.T) {
	const jobs = 2*mostJobRead + 1
	newest := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	at := func(n int) time.Time { return newest.Add(-time.Duration(n) * time.Second) }
	read := 0
	records := func(q store.UsageRecent) (bodies [][]byte, err error) {
		first := 0
		if !q.Before.IsZero() {
			first = int(newest.Sub(q.Before)/time.Second) + 1
		}
		for n := first; n < min(first+q.Limit, jobs); n++ {
			u := api.Usage{ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", n), End: at(n), Ended: "exit:0"}
			if n == jobs-1 {
				u.Ended = "exit:1"
			}
			body, err := json.Marshal(u)
			if err != nil {
				return nil, err
			}
			bodies = append(bodies, body)
		}
		read += len(bodies)
		return bodies, nil
	}
	f := JobFilter{Outcome: usage.Failed, Limit: 10}
	for i, want := range []struct {
		found int
		more  bool
	}{{0, true}, {0, true}, {1, false}} {
		q := store.UsageRecent{Limit: jobsAtOnce}
		var err error
		if q.Before, q.BeforeID, err = behind(f.After); err != nil {
			t.Fatal(err)
		}
		read = 0
		page, err := jobsOf(records, q, f)
		if err != nil || len(page.Items) != want.found || (page.Next != "") != want.more || read > mostJobRead {
			t.Errorf("page %d: %d jobs, then %q, %d records read, %v", i, len(page.Items), page.Next, read, err)
		}
		f.After = page.Next
	}
}
