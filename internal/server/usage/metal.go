package usage

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// settingEnded begins the names under which the store keeps how far a cell's batch system has been read.
const settingEnded = "usage-ended:"

// endedAtOnce is how many jobs one transaction takes: all writers wait for it.
const endedAtOnce = 500

// ReadEnded takes what a cell's batch system says of jobs that have ended on hosts of the cell, each once. Jobs of
// which a host brings the record of a VM are counted by that, whichever comes first. hosts are the names of the cell's
// hosts by those of their nodes.
func (s *Usage) ReadEnded(ctx context.Context, epoch int64, cell farm.Cell, system batch.System,
	hosts map[string]string) error {
	at, err := s.readSoFar(ctx, cell.Name, slices.AppendSeq([]string{}, maps.Keys(hosts)))
	if err != nil {
		return err
	}
	if from, ok := system.(batch.Resumer); ok && at.Cursor == "" {
		at.Cursor = from.Behind(at.from())
	}
	for {
		jobs, next, err := system.Ended(ctx, at.Cursor, endedAtOnce)
		if err != nil {
			return err
		}
		last := len(jobs) < endedAtOnce
		jobs = slices.DeleteFunc(jobs, func(j batch.Ended) bool { return j.Finished.Before(at.from()) })
		if at.Cursor = next; last {
			at.finish(s.Actions.Now().UTC())
		}
		err = s.Actions.ByItself(ctx, epoch, policy.CloseUsage, func(c *action.Call) error {
			return s.takeEnded(c, cell, system.Name(), hosts, jobs, at)
		})
		if err != nil || last {
			return err
		}
	}
}

// readSoFar returns where to read on. Hosts may have joined, whose nodes were not counted.
func (s *Usage) readSoFar(ctx context.Context, cell string, nodes []string) (at ended, err error) {
	now := s.Actions.Now().UTC()
	slices.Sort(nodes)
	err = s.Store.View(ctx, func(t *store.Tx) error {
		at = ended{Since: time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC), Nodes: nodes}
		text, err := t.Setting(settingEnded + cell)
		if action.Missing(err) {
			return nil
		}
		if err != nil {
			return err
		}
		at = ended{}
		if err := json.Unmarshal(text, &at); err != nil {
			return err
		}
		closed, err := closedMonth(t)
		if err != nil {
			return err
		}
		at.join(nodes, closed.Month, now)
		return nil
	})
	return at, err
}

// takeEnded writes records of jobs, and how far they were read.
func (s *Usage) takeEnded(c *action.Call, cell farm.Cell, system farm.BatchSystem, hosts map[string]string,
	jobs []batch.Ended, at ended) error {
	b, err := openBooks(c.Tx, c.Now)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		host, ok := ranOn(j, hosts)
		if !ok {
			continue
		}
		u := s.placed(metalOf(cell.Name, system, j), farm.Host{Name: host, Cell: cell.Name}, b)
		if why := senseless(u); why != "" {
			s.Log.Error("a job of a batch system is left out of the accounts", "cell", cell.Name, "job", u.Batch,
				"reason", why)
			continue
		}
		if err := putMetal(c.Tx, u, b); err != nil {
			return err
		}
	}
	text, err := json.Marshal(at)
	if err != nil {
		return err
	}
	return c.PutSetting(settingEnded+cell.Name, text)
}

// ranOn is the host that a job ran on, "" where it had several. It is none of ours where it never ran, where it held
// the place of a cloud VM, which has a record of its own, and where one of its nodes is no host of the cell: a worker,
// which has one, too.
func ranOn(j batch.Ended, hosts map[string]string) (host string, ok bool) {
	if j.Started.IsZero() || j.Reservation != "" || len(j.Hosts) == 0 {
		return "", false
	}
	for _, node := range j.Hosts {
		if host, ok = hosts[node]; !ok {
			return "", false
		}
	}
	if len(j.Hosts) > 1 {
		host = ""
	}
	return host, true
}

// metalOf is the record of a job that ran without a VM. Its ID is made of which run of which job it is, so that a batch
// system which tells of it again does not count it again.
func metalOf(cell string, system farm.BatchSystem, j batch.Ended) api.Usage {
	key := farm.Allotment{System: system, Job: j.Job}.Key()
	id := metalID(cell, key, cmp.Or(j.Run, strconv.FormatInt(j.Started.Unix(), 10)))
	wall := max(j.Finished.Sub(j.Started), 0)
	how := fmt.Sprintf("exit:%d", j.Code)
	switch {
	case j.Outcome != batch.OutcomeDone && j.Outcome != batch.OutcomeFailed:
		how = string(j.Outcome)
	case j.Signal != 0:
		how = fmt.Sprintf("signal:%d", j.Signal)
	}
	return api.Usage{ID: id, Kind: api.UsageMetal, Batch: key, Queue: j.Queue, User: j.User, Account: j.Account,
		Start: j.Started.UTC(), End: j.Finished.UTC(), Wall: wall.Seconds(), Cores: j.CPUs, CPU: cpuOf(j),
		MemoryPeak: uint64(j.MaxRSS), Ended: how}
}

func cpuOf(j batch.Ended) *float64 {
	if j.CPUTime == nil {
		return nil
	}
	return new(j.CPUTime.Seconds())
}

func metalID(cell, key, run string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", cell, key, run))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // of RFC 9562: version 8, a hash of its maker's own
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// putMetal writes the record of a job in the place of what the batch system said of that run before, unless a host has
// brought the record of its VM. What is of a month that is closed stays, and is all that counts of the run.
func putMetal(t *store.Tx, u api.Usage, b books) error {
	had, err := t.UsageOfBatch(u.Cell, u.Batch)
	if err != nil {
		return err
	}
	byStart := metalID(u.Cell, u.Batch, strconv.FormatInt(u.Start.Unix(), 10)) // as earlier releases named all runs
	inVM := false
	for _, r := range had {
		switch {
		case r.Kind != api.UsageMetal:
			inVM = inVM || oneRun(r, u)
		case r.ID != u.ID && r.ID != byStart:
		case r.Month <= b.closed:
			return nil
		default:
			if err := t.DeleteUsage(r.ID); err != nil {
				return err
			}
		}
	}
	if inVM {
		return nil
	}
	_, err = put(t, u, b.now)
	return err
}

// clocks is how far the clocks of a host and a batch system may be apart.
const clocks = 10 * time.Minute

// oneRun reports whether two records of a job with one number are of one run of it: a job that was put back has
// several, and a batch system that was made anew begins with 1 again.
func oneRun(r store.UsageRow, u api.Usage) bool {
	return r.Ended.Add(-r.Wall).Before(u.End.Add(clocks)) && u.Start.Before(r.Ended.Add(clocks))
}

// replaceMetal removes what a batch system said of a job whose VM's record comes now. In a month that is closed it
// stays, and the VM's record is not counted.
func replaceMetal(t *store.Tx, u api.Usage, closed string) (counted bool, err error) {
	if u.Batch == "" {
		return false, nil
	}
	had, err := t.UsageOfBatch(u.Cell, u.Batch)
	for _, r := range had {
		switch {
		case r.Kind != api.UsageMetal || !oneRun(r, u):
		case r.Host != "" && r.Host != u.Host: // another host's job is not this one's to say
		case r.Month <= closed:
			counted = true
		case err == nil:
			err = t.DeleteUsage(r.ID)
		}
	}
	return counted, err
}
