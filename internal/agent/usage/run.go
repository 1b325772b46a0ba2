package usage

import (
	"context"
	"sync"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

// The times of a desk.
const (
	lookEvery  = 5 * time.Second  // at each VM, in memory
	keepEvery  = 6                // looks, and then on the disk: what a power cut may lose
	auditEvery = time.Hour        // the tuning of the host
	expireLook = time.Hour        // for old records
	firstAudit = 10 * time.Second // behind the start, which has other things to do
)

// Run measures VMs until ctx ends, and ends intervals.
func (d *Desk) Run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	audit := time.NewTimer(firstAudit)
	defer audit.Stop()
	expired := time.Now()
	var comments sync.WaitGroup
	defer comments.Wait()
	if d.Comments != nil {
		comments.Go(func() { d.comment(ctx, *d.Comments) })
	}
	for n := 1; ; n++ {
		select {
		case <-tick.C:
		case <-audit.C:
			d.audit(ctx)
			audit.Reset(auditEvery)
			continue
		case <-ctx.Done():
			for _, v := range d.all() {
				d.look(v)
				d.keep(v)
			}
			return
		}
		d.retry()
		for _, v := range d.all() {
			d.look(v)
			if d.due(v, time.Now()) {
				d.cut(v)
			} else if n%keepEvery == 0 {
				d.keep(v)
			}
		}
		if time.Since(expired) > expireLook {
			expired = time.Now()
			d.records.expire(time.Now().Add(-d.Keep()), d.server.Load())
		}
	}
}

// audit learns the tuning state, for records that begin from now on.
func (d *Desk) audit(ctx context.Context) {
	if d.Tuning == nil {
		return
	}
	state, err := d.Tuning(ctx)
	if err != nil {
		if ctx.Err() == nil {
			d.Log.Warn("records of usage are without the state of the host's tuning", "error", err)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tuning, d.audited = state, err == nil
}

// Tuned is what the tuning audit found of the host; known is false where it was not asked yet, or could not answer.
func (d *Desk) Tuned() (findings []farm.HostFinding, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tuning.Findings, d.audited
}

// retry writes what the disk has not taken.
func (d *Desk) retry() {
	d.mu.Lock()
	var all []api.Usage
	for _, u := range d.unkept {
		all = append(all, u)
	}
	d.mu.Unlock()
	for _, u := range all {
		if d.records.end(u) != nil {
			return
		}
		d.mu.Lock()
		delete(d.unkept, u.ID)
		d.mu.Unlock()
	}
}

// due reports whether an interval of a cloud VM is over: with its day, in UTC, by the wall clock; and, for a clock may
// be set back, after a day by one that nobody sets.
func (d *Desk) due(v *vm, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	const day = 24 * time.Hour
	start := v.entry.Usage.Start
	return v.entry.Usage.Kind == api.UsageVM && !v.over && (now.After(start) &&
		now.UTC().Truncate(day) != start.UTC().Truncate(day) || sinceBoot()-v.entry.Began > day)
}

// cut ends an interval of a VM that goes on, and begins the next one at the same moment. The end is written to the
// interval's own file first, then the next one, then the line: whatever a crash leaves of these, the next agent finds
// one interval that goes on, and each CPU second once.
func (d *Desk) cut(v *vm) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over {
		return
	}
	d.measure(v)
	boot, old := sinceBoot(), v.entry
	old.Usage.End, old.Usage.Wall, old.Usage.Ended = time.Now(), (boot - old.Began).Seconds(), api.EndedCut
	next := d.after(old, boot)
	err := d.records.keep(old)
	if err == nil {
		err = d.records.keep(next)
	}
	d.troubles.Log(d.Log, "an interval of a cloud VM is not ended; it goes on", err)
	if err != nil {
		return
	}
	v.entry = next
	d.write(old.Usage)
}

// after is the interval that begins where another one has ended.
func (d *Desk) after(old entry, boot time.Duration) entry {
	e, u := old, &old.Usage
	e.CPU -= cpuOf(*u)
	if u.NetworkIn != nil {
		e.In, e.Out = e.In+int64(*u.NetworkIn), e.Out+int64(*u.NetworkOut)
	}
	e.Usage.ID, e.Usage.Part, e.Usage.Start = api.NewID(), u.Part+1, u.End
	e.Usage.Ended, e.Usage.End, e.Usage.Wall, e.Usage.CPU = "", time.Time{}, 0, nil
	e.Usage.NetworkIn, e.Usage.NetworkOut = nil, nil
	e.Began, e.Seen = boot, boot
	d.mu.Lock()
	defer d.mu.Unlock()
	e.Usage.Tuning, e.Usage.Findings = d.tuning.Digest, d.tuning.Places()
	return e
}

// Pending are records that the server does not have, the oldest first. taken is to be called when it has them in its
// books; with books of another name, all records are pending again.
func (d *Desk) Pending(limit int) (records []api.Usage, taken func(books string) error, err error) {
	d.server.Store(true)
	records, behind, err := d.records.pending(limit)
	return records, func(books string) error { return d.records.delivered(behind, books) }, err
}

// Changed is closed when the next record has ended.
func (d *Desk) Changed() <-chan struct{} { return d.records.changed() }

// Each calls do with the records of VMs that ended within a time.
func (d *Desk) Each(from, to time.Time, do func(api.Usage) error) error {
	return d.records.read(from, to, do)
}
