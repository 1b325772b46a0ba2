// Package usage keeps what VMs of the fleet have used, and batch jobs without one: it takes records from hosts and
// batch systems, each once, says which project, VO and month they are of, closes months, adds up, and lets old records
// and persons go.
package usage

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/usage"
)

// Options are what the site says of usage.
type Options struct {
	Actions action.Actions
	Store   *store.Store
	Log     *slog.Logger
	// VOs are FQANs by patterns of projects and accounts.
	VOs map[string]string
	// Keep is how long records are kept, and Mask after how long they name nobody any more; 0: for ever, never.
	Keep, Mask time.Duration
	// SameNames says that an account of a host and a user of the fleet of one name are one person.
	SameNames bool
	// HostJobs has jobs that ran without a VM in it, as the batch systems of cells have them.
	HostJobs bool
	// Silent reports whether a host is not heard of; nil: all are.
	Silent func(farm.Host) bool
}

// Usage is actions on records of usage.
type Usage struct{ Options }

// New makes them.
func New(o Options) *Usage { return &Usage{o} }

// CodeLongUsage is of a host that brings more records at a time than it may.
const CodeLongUsage farm.Code = "usage-too-long"

// Take takes records from a host. It refuses invalid records for good, so that the records after them are taken.
func (s *Usage) Take(ctx context.Context, who farm.Identity, batch fleet.UsageBatch) (out fleet.UsageTaken, err error) {
	if len(batch.Records) > fleet.MaxUsageBatch {
		return out, &farm.Error{Kind: farm.Invalid, Code: CodeLongUsage,
			Message: farm.Count(len(batch.Records), "record") + " of usage at a time; fewer are taken",
			Hint:    "update grange on the host: its agent brings too many"}
	}
	if len(batch.Records) == 0 { // each host asks so when it comes back: no writer waits for that
		err = s.Store.View(ctx, func(t *store.Tx) error {
			out.Books, err = t.Books()
			return err
		})
		return out, err
	}
	_, err = s.Store.Update(ctx, func(t *store.Tx) error {
		out = fleet.UsageTaken{}
		if out.Books, err = t.Books(); err != nil {
			return err
		}
		d, err := s.delivery(t, who.Host)
		if err != nil {
			return err
		}
		for _, u := range batch.Records {
			if err := d.take(u, &out); err != nil {
				return err
			}
		}
		d.tell(s.Log)
		return d.write()
	})
	return out, err
}

// books are what records are entered by.
type books struct {
	projects []farm.Project
	closed   string // the last month that is closed
	now      time.Time
}

func openBooks(t *store.Tx, now time.Time) (b books, err error) {
	b.now = now
	if b.projects, err = t.Projects(); err != nil {
		return b, err
	}
	closed, err := closedMonth(t)
	b.closed = closed.Month
	return b, err
}

// put writes a record, and reports whether it is new.
func put(t *store.Tx, u api.Usage, now time.Time) (fresh bool, err error) {
	row, err := rowOf(u)
	if err != nil {
		return false, err
	}
	row.Came = now
	return t.PutUsage(row)
}

const (
	mostWall = 50 * 365 * 24 * 3600.0 // seconds
	// slack is for records that are short, and for clocks that are read one after the other.
	slack = 3600.0
)

// mostCPU is how long a VM can have kept CPUs busy: its own, and as many threads of QEMU's as there may be.
func mostCPU(u api.Usage) float64 { return min(4*u.Wall*float64(max(u.Cores, 1))+slack, 9e9) }

// used is the CPU time of a record as far as it is known, in seconds.
func used(u api.Usage) float64 {
	if u.CPU == nil {
		return 0
	}
	return *u.CPU
}

func within(n, most float64) bool { return n >= 0 && n <= most }

// senseless is why a record cannot be taken; "": it can.
func senseless(u api.Usage) string {
	text, err := json.Marshal(u)
	switch {
	case !farm.IsID(u.ID):
		return "it has no ID"
	case u.Cores < 0 || u.Cores > farm.MaxCPUs:
		return "its cores make no sense"
	case !within(u.Wall, mostWall) || u.CPU != nil && !within(*u.CPU, mostCPU(u)):
		return "its times make no sense"
	case u.Start.IsZero() || u.End.IsZero():
		return "it has no start or no end"
	case err != nil || len(text) > 16<<10 || !utf8.Valid(text) || strings.Contains(string(text), `\u0000`):
		return "it is too long, or no text"
	}
	return ""
}

// placed is a record with what the server knows: where it is from, whose it is, and when it counts.
func (s *Usage) placed(u api.Usage, host farm.Host, b books) api.Usage {
	u.Host, u.Cell, u.Score, u.ScoreUnit, u.Outside = host.Name, host.Cell, 0, "", ""
	if u.End.After(b.now.Add(early)) {
		u.End = b.now
	}
	if u.Kind != api.UsageVM {
		u.Project = "" // the account says it
	}
	u.Project, u.Phases = cmp.Or(u.Project, projectOf(u.Account, b.projects)), cleanPhases(u.Phases)
	u.FQAN = s.fqan(u)
	u.VO, _, _ = strings.Cut(strings.TrimPrefix(u.FQAN, "/"), "/")
	u.Month, u.Late = usage.Counts(usage.Month(u), b.closed)
	return u
}

// fqan is what the site says that a record's project or account is of; the longest pattern counts.
func (s *Usage) fqan(u api.Usage) (fqan string) {
	best := -1
	for pattern, value := range s.VOs {
		for _, name := range []string{u.Project, u.Account} {
			if ok, err := path.Match(pattern, name); err == nil && ok && name != "" && len(pattern) > best {
				fqan, best = value, len(pattern)
			}
		}
	}
	return fqan
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func rowOf(u api.Usage) (store.UsageRow, error) {
	body, err := json.Marshal(u)
	r := store.UsageRow{ID: u.ID, Month: u.Month, Late: u.Late, Ended: u.End, Kind: u.Kind, Owner: u.User,
		Project: u.Project, Account: u.Account, VO: u.VO, Cell: u.Cell, Host: u.Host, Hardware: u.Hardware,
		Job: u.Job, Batch: u.Batch, Tuning: u.Tuning, Cores: u.Cores, Wall: seconds(u.Wall),
		Body: body}
	if u.CPU != nil {
		r.CPU = new(seconds(*u.CPU))
	}
	if u.JobCPU != nil {
		r.JobCPU = seconds(*u.JobCPU)
	}
	return r, err
}

// settingClosed is the last month that is closed: fleet.UsageClosed.
const settingClosed = "usage-closed"

func closedMonth(t *store.Tx) (c fleet.UsageClosed, err error) {
	text, err := t.Setting(settingClosed)
	if action.Missing(err) {
		return c, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	return c, err
}

// CodeMonthOpen is of a month that cannot be closed.
const CodeMonthOpen farm.Code = "month-open"

// CloseMonth closes a month and all before it, for good: what comes later counts in the first one that is open.
func (s *Usage) CloseMonth(ctx context.Context, who farm.Identity, month string) (c fleet.UsageClosed, err error) {
	if _, err := usage.ParseMonth(month); err != nil {
		return c, err
	}
	_, err = s.Actions.Change(ctx, who, policy.CloseUsage, func(call *action.Call) error {
		if err := call.May(policy.Target{Name: "usage of " + month}); err != nil {
			return err
		}
		if c, err = closedMonth(call.Tx); err != nil {
			return err
		}
		switch {
		case month <= c.Month:
			return nil
		case month >= usage.MonthOf(call.Now):
			return &farm.Error{Kind: farm.Conflict, Code: CodeMonthOpen, Message: "month " + month + " is not over",
				Hint: "close it when it is; in UTC"}
		}
		now := call.Now
		c = fleet.UsageClosed{Month: month, By: call.Caller(), At: &now}
		text, err := json.Marshal(c)
		if err != nil {
			return err
		}
		if err := call.PutSetting(settingClosed, text); err != nil {
			return err
		}
		return call.Did("")
	})
	return c, err
}
