package usage

import (
	"log/slog"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/usage"
)

// CodeEarlyUsage is of a host that brings records before it has reported what it has.
const CodeEarlyUsage farm.Code = "usage-early"

// delivery is one transaction in which a host brings records.
type delivery struct {
	*Usage
	t       *store.Tx
	host    farm.Host
	books   books
	bounds  bounds
	sums    map[string]*sums // by what they are of
	held    []*sums          // to which the record is held that is judged
	outside int              // records that count for nobody and are kept, without those that people took back
	put     int              // of them, by this delivery
	why     string           // of the last one
}

func (s *Usage) delivery(t *store.Tx, id string) (*delivery, error) {
	host, err := t.Host(id)
	if err != nil {
		return nil, err
	}
	if host.Facts.Topology.Online.Empty() {
		return nil, &farm.Error{Kind: farm.Unavailable, Code: CodeEarlyUsage,
			Message: "host " + host.Name + " has not reported yet what it has", Hint: "it brings its records again"}
	}
	b, err := openBooks(t, s.Actions.Now())
	if err != nil {
		return nil, err
	}
	n, err := t.CountOutside(host.Name, outWithdrawn)
	return &delivery{Usage: s, t: t, host: host, books: b, bounds: boundsOf(host, b.now), outside: n,
		sums: map[string]*sums{}}, err
}

// sumOf brings the hours of a record, of its host or its VM.
func (d *delivery) sumOf(key string, u api.Usage) (*sums, error) {
	if d.sums[key] == nil {
		d.sums[key] = sumsOf(key)
	}
	return d.sums[key], d.sums[key].read(d.t, u)
}

// write writes the hours that have changed.
func (d *delivery) write() error {
	for _, s := range d.sums {
		if err := s.write(d.t); err != nil {
			return err
		}
	}
	return nil
}

// take takes one record of a host, and counts what became of it. It refuses a record that makes no sense.
func (d *delivery) take(u api.Usage, out *fleet.UsageTaken) error {
	refused := "no host knows of its kind"
	if u.Kind == api.UsageJob || u.Kind == api.UsageWorker || u.Kind == api.UsageVM {
		refused = senseless(u)
	}
	if refused == "" {
		fresh, why, err := d.enter(u)
		if err != nil {
			return err
		}
		if refused = why; fresh {
			out.New++
		}
	}
	if refused != "" {
		out.Refused++
		d.Log.Error("a record of usage is refused", "host", d.host.Name, "record", farm.Clean(u.ID, 50), "reason",
			refused)
	}
	out.Outside = d.put
	return nil
}

// enter writes a record that makes sense. It reports whether it is new, or why it is refused.
func (d *delivery) enter(u api.Usage) (fresh bool, refused string, err error) {
	if d.Keep > 0 && u.End.Before(d.books.now.Add(-d.Keep)) {
		return false, "", nil // it is about to be pruned, or was, and its month is closed
	}
	has, err := d.t.HasUsage(u.ID)
	if err != nil {
		return false, "", err
	}
	if !has {
		if fresh, refused, err = d.enterNew(u); err != nil || refused != "" {
			return fresh, refused, err
		}
	}
	if u.Job != "" {
		err = d.t.EndHostJob(d.host.ID, u.Job)
	}
	return fresh, "", err
}

// enterNew writes a record that is not there yet: to whom it counts, or why to nobody.
func (d *delivery) enterNew(u api.Usage) (fresh bool, refused string, err error) {
	u.JobCPU, d.held = jobCPU(u), nil
	u, why, err := d.judge(u)
	if err != nil {
		return false, "", err
	}
	if why != nil {
		refused, err = d.setApart(u, *why)
		return false, refused, err
	}
	u = d.placed(u, d.host, d.books)
	counted, err := replaceMetal(d.t, u, d.books.closed)
	if err != nil {
		return false, "", err
	}
	if counted {
		return false, "job " + u.Batch + " was counted in a month that is closed, as its batch system has it", nil
	}
	for _, s := range d.held {
		s.add(u)
	}
	fresh, err = put(d.t, u, d.books.now)
	return fresh, "", err
}

// judge holds a record to what the server knows of its host, and says whose a cloud VM's is. The reason is why it
// counts for nobody.
func (d *delivery) judge(u api.Usage) (api.Usage, *reason, error) {
	if why := d.bounds.outside(u); why != nil {
		return u, why, nil
	}
	if u.Kind == api.UsageVM {
		stays, err := d.t.Places(u.VM, d.host.ID)
		if err != nil {
			return u, nil, err
		}
		s, why := stayOf(stays, u, d.books.now)
		if why != nil {
			return u, why, nil
		}
		u.User, u.Project, u.Account = s.Owner, s.Project, ""
		if !s.Since.IsZero() { // its size is known
			why, err = d.crowded(outVMFull, keyOf(u.VM), u, s.CPUs)
		}
		if why != nil || err != nil {
			return u, why, err
		}
	}
	why, err := d.crowded(outFull, d.host.Name, u, d.bounds.threads)
	return u, why, err
}

// crowded is why a record is too much beside the others of its host or its VM, which has so many cores; nil: it is not.
func (d *delivery) crowded(word, key string, u api.Usage, cores int) (*reason, error) {
	s, err := d.sumOf(key, u)
	if err != nil {
		return nil, err
	}
	d.held = append(d.held, s)
	if text := s.full(u, cores); text != "" {
		return &reason{word, text}, nil
	}
	return nil, nil
}

// mostOutside bounds how many records of a host are kept that count for nobody.
const mostOutside = 10_000

// setApart writes a record that counts for nobody. refused is why it is not kept either.
func (d *delivery) setApart(u api.Usage, why reason) (refused string, err error) {
	d.why = why.word + ": " + why.text
	if d.outside >= mostOutside {
		return d.why + "; and so many records of its host count for nobody that no more are kept", nil
	}
	d.outside, d.put = d.outside+1, d.put+1
	u.Host, u.Cell, u.Outside = d.host.Name, d.host.Cell, d.why
	u.Score, u.ScoreUnit, u.FQAN, u.VO = 0, "", "", ""
	u.Month, u.Late, u.Phases = usage.MonthOf(d.books.now), false, cleanPhases(u.Phases)
	row, err := rowOf(u)
	if err != nil {
		return "", err
	}
	row.Outside, row.Came = why.word, d.books.now
	row.Owner, row.Project, row.Account, row.VO, row.Batch = "", "", "", "", ""
	if row.Ended.After(d.books.now) { // it would be kept for as long
		row.Ended = d.books.now
	}
	_, err = d.t.PutUsage(row)
	return "", err
}

// tell logs that records count for nobody: once, for a host brings many.
func (d *delivery) tell(log *slog.Logger) {
	if d.put > 0 {
		log.Warn("records of usage count for nobody: `grange usage check` shows them", "host", d.host.Name, "records",
			d.put, "last", d.why)
	}
}
