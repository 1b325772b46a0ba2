package store

import (
	"encoding/json"
	"strings"
	"time"
)

// counts is the condition that a record counts for somebody.
const counts = "outside = ''"

// outsideRows are records that count for nobody, and what keeps others from becoming such ones.
type outsideRows struct{ *sqlTx }

// UsageOutside chooses records that count for nobody, and that the caller may see; empty fields choose all.
type UsageOutside struct {
	Host, Why string // a name, a word
	From, To  time.Time
	Sees      UsageSight
	After     string // page: those with an ID behind this one
	Limit     int
}

// OutsideRow is a record that counts for nobody, and the word that says why.
type OutsideRow struct {
	Why  string
	Body []byte
}

// UsageOutside are records that count for nobody, in the order of their IDs.
func (t outsideRows) UsageOutside(f UsageOutside) (all []OutsideRow, err error) {
	args := places{f.After}
	conditions := []string{"outside <> ''", "id > $1"}
	conditions = append(conditions, chosenUsage(args.text, []chosen{{"host", f.Host}, {"outside", f.Why}})...)
	if !f.From.IsZero() {
		conditions = append(conditions, "ended >= "+args.value(stamp(f.From)))
	}
	if !f.To.IsZero() {
		conditions = append(conditions, "ended < "+args.value(stamp(f.To)))
	}
	conditions = append(conditions, f.Sees.conditions(args.text)...)
	limit := args.value(f.Limit)
	err = t.each(func(r scanner) error {
		var body string
		var o OutsideRow
		err := r.Scan(&o.Why, &body)
		o.Body = []byte(body)
		all = append(all, o)
		return err
	}, "SELECT outside, body FROM usage_records WHERE "+strings.Join(conditions, " AND ")+" ORDER BY id LIMIT "+limit,
		args...)
	return all, err
}

// UsageOutsideCount is how many records of a host count for nobody, by the word that says why.
type UsageOutsideCount struct {
	Host, Why string
	Records   int
}

// UsageOutsideCounts counts the records that count for nobody, by host and word.
func (t outsideRows) UsageOutsideCounts() (all []UsageOutsideCount, err error) {
	err = t.each(func(r scanner) error {
		var c UsageOutsideCount
		err := r.Scan(&c.Host, &c.Why, &c.Records)
		all = append(all, c)
		return err
	}, `SELECT host, outside, COUNT(*) FROM usage_records WHERE outside <> '' GROUP BY host, outside
		ORDER BY host, outside`)
	return all, err
}

// CountOutside is how many records of a host count for nobody, for other reasons than one.
func (t outsideRows) CountOutside(host, but string) (n int, err error) {
	err = t.row("SELECT COUNT(*) FROM usage_records WHERE host = $1 AND outside <> '' AND outside <> $2", host,
		but).Scan(&n)
	return n, err
}

// HasUsage reports whether a record is there, whether it counts or not.
func (t outsideRows) HasUsage(id string) (bool, error) {
	return t.is("SELECT COUNT(*) > 0 FROM usage_records WHERE id = $1", id)
}

// HostPeriod chooses the records that count and that a host brought itself, by its name: those that ended from a time
// on and before another, or that came then.
type HostPeriod struct {
	Host     string
	From, To time.Time
	Came     bool // the times are when the server took them
}

func (p HostPeriod) where() (text string, args places) {
	at := "ended"
	if p.Came {
		at = "came"
	}
	return " WHERE host = $1 AND kind <> 'metal' AND " + counts + " AND " + at + " >= $2 AND " + at + " < $3",
		places{p.Host, stamp(p.From), stamp(p.To)}
}

// PeriodSum is what records of a period add up to.
type PeriodSum struct {
	Records, Closed int     // Closed are those of months that are closed
	CoreTime        float64 // seconds
}

// SumPeriod adds records of a host up. closed is the last month that is closed.
func (t outsideRows) SumPeriod(p HostPeriod, closed string) (s PeriodSum, err error) {
	where, args := p.where()
	last := args.value(closed)
	err = t.row("SELECT COUNT(*), CAST(COALESCE(SUM(CASE WHEN month <= "+last+" THEN 1 ELSE 0 END), 0) AS BIGINT), "+
		"COALESCE(SUM(CAST(wall_us AS DOUBLE PRECISION) * cores), 0) / 1e6 FROM usage_records"+where,
		args...).Scan(&s.Records, &s.Closed, &s.CoreTime)
	return s, err
}

// Withdraw has records of a host count for nobody from now on, and says so by a word.
func (t outsideRows) Withdraw(p HostPeriod, why string) error {
	where, args := p.where()
	_, err := t.exec("UPDATE usage_records SET outside = "+args.value(why)+
		", owner = '', project = '', account = '', vo = '', batch = ''"+where, args...)
	return err
}

// Hours are the core seconds that a host charges for each hour of a day.
type Hours [24]float64

// UsageHours reads the days of a host, as 2026-10-20, from one to another, both included. Days without records are not
// in it.
func (t outsideRows) UsageHours(host, from, to string) (map[string]*Hours, error) {
	days := map[string]*Hours{}
	return days, t.each(func(r scanner) error {
		var day, text string
		if err := r.Scan(&day, &text); err != nil {
			return err
		}
		days[day] = &Hours{}
		return decode(text, days[day])
	}, "SELECT day, hours FROM usage_hours WHERE host = $1 AND day >= $2 AND day <= $3", host, from, to)
}

// SetUsageHours writes one day of a host.
func (t outsideRows) SetUsageHours(host, day string, h Hours) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	_, err = t.exec(`INSERT INTO usage_hours (host, day, hours) VALUES ($1, $2, $3)
		ON CONFLICT (host, day) DO UPDATE SET hours = excluded.hours`, host, day, string(text))
	return err
}

// PruneUsageHours drops days before one, some of them at once. again: there may be more.
func (t outsideRows) PruneUsageHours(before string) (again bool, err error) {
	n, err := t.exec("DELETE FROM usage_hours WHERE (host, day) IN (SELECT host, day FROM usage_hours WHERE day < $1 "+
		"ORDER BY day LIMIT $2)", before, pruneAtOnce)
	return n == pruneAtOnce, err
}
