package store

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// usageRows are records of what VMs have used. The feed does not tell of them.
type usageRows struct{ *sqlTx }

// UsageRow is one record: what is added up, and a text that is the server's own.
type UsageRow struct {
	ID, Month                                               string
	Late                                                    bool
	Ended                                                   time.Time
	Came                                                    time.Time // the server took it then
	Kind, Owner, Project, Account, VO, Cell, Host, Hardware string
	Job                                                     string // ID; "": of none
	Batch                                                   string // job of the cell's batch system; "": of none
	Tuning                                                  string // digest of how the host was tuned; "": not known
	Outside                                                 string // why it counts for nobody; "": it counts
	Cores                                                   int
	Wall, JobCPU                                            time.Duration
	CPU                                                     *time.Duration // nil: not known
	Body                                                    []byte
}

// UsageFilter chooses records of months, both included, and that the caller may see. Other empty fields choose all.
type UsageFilter struct {
	From, To                   string
	Owner, Project, Cell, Kind string
	Sees                       UsageSight
}

// UsageSight is whose records somebody may see.
type UsageSight struct {
	All             bool
	Owner           string // whose own they are
	OwnKind         string // of which kind their own have to be; "": of any
	Projects, Cells []string
}

// UsageSum is what records of one key, hardware, state of tuning and size add up to.
type UsageSum struct {
	Key, Hardware, Tuning       string
	Cores, Records, Late        int
	Wall, CoreTime, CPU, JobCPU float64 // seconds: a farm's month is longer than a time.Duration
	CPUUnknown                  int     // records whose CPU time is not known
	CoreTimeUnknown             float64 // of those
}

// usageKeys are the columns by which records are added up.
var usageKeys = map[string]string{"user": "owner", "project": "project", "account": "account", "vo": "vo",
	"cell": "cell", "host": "host", "kind": "kind", "month": "month"}

// UsageKeys are the words that UsageSums takes, in order.
func UsageKeys() []string {
	var all []string
	for word := range usageKeys {
		all = append(all, word)
	}
	slices.Sort(all)
	return all
}

// PutUsage writes a record, and reports whether it is new.
func (t usageRows) PutUsage(r UsageRow) (bool, error) {
	n, err := t.exec(`INSERT INTO usage_records (id, month, late, ended, kind, owner, project, account, vo, cell, host,
		hardware, cores, wall_us, cpu_us, job_us, masked, body, batch, tuning, job, outside, came)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, 0, $17, $18, $19, $20, $21, $22)
		ON CONFLICT DO NOTHING`,
		r.ID, r.Month, number(r.Late), stamp(r.Ended), r.Kind, r.Owner, r.Project, r.Account, r.VO, r.Cell, r.Host,
		r.Hardware, int64(r.Cores), r.Wall.Microseconds(), microseconds(r.CPU), r.JobCPU.Microseconds(),
		string(r.Body), r.Batch, r.Tuning, r.Job, r.Outside, stamp(r.Came))
	return n > 0, err
}

// unknownCPU is in the column cpu_us where the CPU time is not known.
const unknownCPU = -1

func microseconds(d *time.Duration) int64 {
	if d == nil {
		return unknownCPU
	}
	return d.Microseconds()
}

// UsageOfBatch are records of one job of a cell's batch system: whose they are, and when.
func (t usageRows) UsageOfBatch(cell, batch string) (all []UsageRow, err error) {
	err = t.each(func(r scanner) error {
		u := UsageRow{Cell: cell, Batch: batch}
		var ended, wall int64
		err := r.Scan(&u.ID, &u.Kind, &u.Month, &u.Host, &ended, &wall)
		u.Ended, u.Wall = unstamp(ended), time.Duration(wall)*time.Microsecond
		all = append(all, u)
		return err
	}, "SELECT id, kind, month, host, ended, wall_us FROM usage_records WHERE cell = $1 AND batch = $2 AND batch <> '' "+
		"AND "+counts+" ORDER BY id", cell, batch)
	return all, err
}

// DeleteUsage drops one record.
func (t usageRows) DeleteUsage(id string) error {
	n, err := t.exec("DELETE FROM usage_records WHERE id = $1", id)
	return must(n, err, "record of usage", id)
}

// where is the condition of a filter, and its values.
func (f UsageFilter) where() (text string, args places) {
	conditions := []string{"month >= $1", "month <= $2", counts}
	args = places{f.From, f.To}
	conditions = append(conditions, chosenUsage(args.text, []chosen{{"owner", f.Owner}, {"project", f.Project},
		{"cell", f.Cell}, {"kind", f.Kind}})...)
	conditions = append(conditions, f.Sees.conditions(args.text)...)
	return " WHERE " + strings.Join(conditions, " AND "), args
}

// chosen is a column and the value that it has; "": any.
type chosen struct{ column, value string }

// chosenUsage are the conditions of columns. value takes one, and returns its place in the statement: their order is
// the same each time, so that the engine knows the statement again.
func chosenUsage(value func(string) string, wanted []chosen) (conditions []string) {
	for _, c := range wanted {
		if c.value != "" {
			conditions = append(conditions, c.column+" = "+value(c.value))
		}
	}
	return conditions
}

// conditions are that a record is in sight.
func (see UsageSight) conditions(value func(string) string) []string {
	if see.All {
		return nil
	}
	sees := []string{"1 = 0"}
	if see.Owner != "" {
		own := "owner = " + value(see.Owner)
		if see.OwnKind != "" {
			own += " AND kind = " + value(see.OwnKind)
		}
		sees = append(sees, own)
	}
	for _, name := range see.Projects {
		sees = append(sees, "project = "+value(name))
	}
	for _, name := range see.Cells {
		sees = append(sees, "cell = "+value(name))
	}
	return []string{"(" + strings.Join(sees, " OR ") + ")"}
}

// UsageRecent chooses records that ended at a time or later, and that the caller may see, the newest first. Other
// empty fields choose all.
type UsageRecent struct {
	Since                      time.Time
	Kinds                      []string // at least one
	Owner, Project, Cell, Host string
	Sees                       UsageSight
	Before                     time.Time // page: those that ended before, or then with an ID before BeforeID
	BeforeID                   string
	Limit                      int
}

// places are the values of a statement, each at its place.
type places []any

// value puts one more there, and returns its place.
func (p *places) value(v any) string {
	*p = append(*p, v)
	return fmt.Sprintf("$%d", len(*p))
}

func (p *places) text(v string) string { return p.value(v) }

// RecentUsage are the texts of records, the newest first.
func (t usageRows) RecentUsage(f UsageRecent) (bodies [][]byte, err error) {
	args := places{stamp(f.Since)}
	conditions := []string{"ended >= $1", counts}
	if !f.Before.IsZero() {
		at := args.value(stamp(f.Before))
		conditions = append(conditions, "ended <= "+at, "(ended < "+at+" OR id < "+args.value(f.BeforeID)+")")
	}
	kinds := []string{}
	for _, k := range f.Kinds {
		kinds = append(kinds, args.value(k))
	}
	conditions = append(conditions, "kind IN ("+strings.Join(kinds, ", ")+")")
	conditions = append(conditions, chosenUsage(args.text, []chosen{{"owner", f.Owner}, {"project", f.Project},
		{"cell", f.Cell}, {"host", f.Host}})...)
	conditions = append(conditions, f.Sees.conditions(args.text)...)
	limit := args.value(f.Limit)
	return t.usageBodies("WHERE "+strings.Join(conditions, " AND ")+" ORDER BY ended DESC, id DESC LIMIT "+limit,
		args...)
}

// UsageSums adds up by one of UsageKeys, apart by hardware, state of tuning and size.
func (t usageRows) UsageSums(by string, f UsageFilter) (sums []UsageSum, err error) {
	column, known := usageKeys[by]
	if !known {
		return nil, fmt.Errorf("store: records of usage are not added up by %q", by)
	}
	where, args := f.where()
	err = t.each(func(r scanner) error {
		var s UsageSum
		err := r.Scan(&s.Key, &s.Hardware, &s.Tuning, &s.Cores, &s.Records, &s.Late, &s.Wall, &s.CoreTime, &s.CPU,
			&s.JobCPU, &s.CPUUnknown, &s.CoreTimeUnknown)
		sums = append(sums, s)
		return err
	}, "SELECT "+column+`, hardware, tuning, cores, COUNT(*), CAST(SUM(late) AS BIGINT),
		SUM(CAST(wall_us AS DOUBLE PRECISION)) / 1e6, SUM(CAST(wall_us AS DOUBLE PRECISION) * cores) / 1e6,
		SUM(CASE WHEN cpu_us < 0 THEN 0 ELSE CAST(cpu_us AS DOUBLE PRECISION) END) / 1e6,
		SUM(CAST(job_us AS DOUBLE PRECISION)) / 1e6, CAST(SUM(CASE WHEN cpu_us < 0 THEN 1 ELSE 0 END) AS BIGINT),
		SUM(CASE WHEN cpu_us < 0 THEN CAST(wall_us AS DOUBLE PRECISION) * cores ELSE 0.0 END) / 1e6
		FROM usage_records`+where+" GROUP BY "+column+", hardware, tuning, cores ORDER BY "+column+", hardware, tuning, cores",
		args...)
	return sums, err
}

// Usage are the texts of records, in the order of their IDs, behind one.
func (t usageRows) Usage(f UsageFilter, after string, limit int) (bodies [][]byte, err error) {
	where, args := f.where()
	args = append(args, after, limit)
	return t.usageBodies(fmt.Sprintf("%s AND id > $%d ORDER BY id LIMIT $%d", where, len(args)-1, len(args)), args...)
}

// usageBodies are the texts of records, by what follows the table's name in a statement.
func (t usageRows) usageBodies(which string, args ...any) (bodies [][]byte, err error) {
	err = t.each(func(r scanner) error {
		var body string
		err := r.Scan(&body)
		bodies = append(bodies, []byte(body))
		return err
	}, "SELECT body FROM usage_records "+which, args...)
	return bodies, err
}

// PruneUsage drops records that ended before a time, some of them at once. again: there may be more.
func (t usageRows) PruneUsage(before time.Time) (again bool, err error) {
	n, err := t.exec("DELETE FROM usage_records WHERE id IN (SELECT id FROM usage_records WHERE ended < $1 ORDER BY "+
		"ended LIMIT $2)", stamp(before), pruneAtOnce)
	return n == pruneAtOnce, err
}

// UsageToMask are the texts of records that ended before a time and still name a person.
func (t usageRows) UsageToMask(before time.Time, limit int) (bodies [][]byte, err error) {
	return t.usageBodies("WHERE masked = 0 AND ended < $1 ORDER BY ended LIMIT $2", stamp(before), limit)
}

// MaskUsage writes a record without its person, who is called owner from then on.
func (t usageRows) MaskUsage(id, owner string, body []byte) error {
	n, err := t.exec("UPDATE usage_records SET masked = 1, owner = $1, body = $2, batch = '' WHERE id = $3", owner,
		string(body), id)
	return must(n, err, "record of usage", id)
}
