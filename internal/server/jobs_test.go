package server

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/usage"
	"github.com/grange-project/grange/internal/store"
	outcome "github.com/grange-project/grange/internal/usage"
)

// jobsLab has jobs 1 to 9, each a minute after the one before, of which every third has failed.
func jobsLab(t *testing.T) (l *lab, jobs func(who farm.Identity, f usage.JobFilter) (ids, next string)) {
	l, of, record := usageLab(t)
	for id := byte(1); id < 10; id++ {
		u := record(id)
		u.End, u.Ended, u.User = u.End.Add(time.Duration(id)*time.Minute), "exit:0", "bob"
		if id%3 == 0 {
			u.Ended = "signal:9"
		}
		if id == 9 {
			u.Kind, u.VM, u.Account = api.UsageVM, evesVM, "" // no job
		}
		l.takes(of, 1, 0, u)
	}
	return l, func(who farm.Identity, f usage.JobFilter) (ids, next string) {
		t.Helper()
		page, err := l.Usage.Jobs(t.Context(), who, f)
		if err != nil {
			return string(code(err)), ""
		}
		for _, u := range page.Items {
			ids += strings.TrimLeft(u.ID[len(u.ID)-2:], "0")
		}
		return ids, page.Next
	}
}

// TestJobs: the newest first, of what is chosen.
func TestJobs(t *testing.T) {
	_, jobs := jobsLab(t)
	began := time.Date(2026, 10, 20, 1, 0, 0, 0, time.UTC)
	for want, f := range map[string]usage.JobFilter{
		"87654321":    {User: "bob", Host: "wn-1", Cell: "east", Project: "atlas", Kind: api.UsageJob},
		"876":         {Since: began.Add(6 * time.Minute)},
		"63":          {Outcome: outcome.Failed},
		"875421":      {Outcome: outcome.Done},
		"":            {Host: "wn-2"},
		"bad-request": {Kind: api.UsageVM},
	} {
		if got, next := jobs(site, f); got != want || next != "" {
			t.Errorf("%+v: %q, %q; want %q", f, got, next, want)
		}
	}
	for _, after := range []string{"x", "2026-10-20T01:00:00Z", "2026-10-20T01:00:00Z,x"} {
		if got, _ := jobs(site, usage.JobFilter{After: after}); got != string(farm.CodeBadRequest) {
			t.Errorf("behind %q: %q", after, got)
		}
	}
}

// TestJobPages: pages are one list, however large they are, and the last one knows that it is the last.
func TestJobPages(t *testing.T) {
	_, jobs := jobsLab(t)
	for _, how := range []outcome.Outcome{"", outcome.Done} {
		whole, _ := jobs(site, usage.JobFilter{Outcome: how})
		for limit := 1; limit < 10; limit++ {
			all, pages := "", 0
			for f := (usage.JobFilter{Limit: limit, Outcome: how}); ; pages++ {
				ids, next := jobs(site, f)
				all += ids
				if f.After = next; next == "" {
					break
				}
			}
			if all != whole || pages != (len(whole)-1)/limit {
				t.Errorf("%s: %d at a time: %q of %q, on %d pages and the last", how, limit, all, whole, pages)
			}
		}
	}
}

// TestWhoSeesJobs: as usage.
func TestWhoSeesJobs(t *testing.T) {
	l, jobs := jobsLab(t)
	l.update(func(tx *store.Tx) error {
		return errors.Join(tx.PutGrant(farm.Grant{User: "cell", Role: farm.RoleReader, Cell: "east"}),
			tx.PutGrant(farm.Grant{User: "west", Role: farm.RoleReader, Cell: "west"}))
	})
	const all = "87654321"
	for i, c := range []struct {
		who  farm.Identity
		want string
	}{{site, all}, {otto, all}, {farm.Identity{User: "cell"}, all}, {farm.Identity{User: "west"}, ""}, {ann, ""},
		{farm.Identity{User: "bob"}, ""}, {farm.Identity{}, string(farm.CodeNoRole)}} {
		if got, _ := jobs(c.who, usage.JobFilter{}); got != c.want {
			t.Errorf("%s: %q, want %q", fmt.Sprint(i, c.who.User), got, c.want)
		}
	}
	l.Usage.SameNames = true
	if got, _ := jobs(farm.Identity{User: "bob"}, usage.JobFilter{}); got != all {
		t.Errorf("where accounts are users: %q", got)
	}
}
