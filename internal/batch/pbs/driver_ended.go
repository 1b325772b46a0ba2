package pbs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
)

// Ended reads the accounting log: a file a day, to which PBS appends one line for each event. The cursor is the day and
// the byte behind the last line that was read: nothing is left out, and nothing comes twice.
func (d *Driver) Ended(_ context.Context, after batch.Cursor, limit int) ([]batch.Ended, batch.Cursor, error) {
	day, offset := "", int64(0)
	if after != "" {
		text, at, ok := strings.Cut(string(after), "+")
		n, err := strconv.ParseInt(at, 10, 64)
		if !ok || err != nil || n < 0 || !isDay(text) {
			return nil, after, batch.NoCursor(farm.PBS, after)
		}
		day, offset = text, n
	}
	entries, err := os.ReadDir(d.o.Accounting)
	if err != nil {
		return nil, after, batch.Away(farm.PBS, err)
	}
	var jobs []batch.Ended
	for _, e := range entries { // by name, which is by day
		if !isDay(e.Name()) || e.Name() < day {
			continue
		}
		if e.Name() != day {
			day, offset = e.Name(), 0
		}
		more, end, err := d.read(filepath.Join(d.o.Accounting, day), offset, limit-len(jobs))
		if err != nil {
			return nil, after, err
		}
		jobs, offset = append(jobs, more...), end
		if len(jobs) >= limit {
			break
		}
	}
	if day == "" {
		return nil, after, nil // nothing was ever accounted
	}
	return jobs, batch.Cursor(fmt.Sprintf("%s+%d", day, offset)), nil
}

func isDay(name string) bool {
	_, err := time.Parse("20060102", name)
	return err == nil
}

func (d *Driver) read(path string, from int64, limit int) (jobs []batch.Ended, end int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, from, batch.Away(farm.PBS, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() < from {
		return nil, from, batch.NoCursor(farm.PBS, batch.Cursor(fmt.Sprintf("%s+%d", filepath.Base(path), from)))
	}
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return nil, from, err
	}
	end = from
	lines := bufio.NewReader(f)
	for len(jobs) < limit {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break // a line that is being written is read when it is whole
		}
		if err != nil {
			return nil, from, batch.Away(farm.PBS, err)
		}
		j, ok, err := d.record(string(bytes.TrimSpace(line)))
		if err != nil {
			return nil, from, err
		}
		end += int64(len(line))
		if ok {
			jobs = append(jobs, j)
		}
	}
	return jobs, end, nil
}

// record reads a line: 11/21/2026 08:00:00;E;12.head;user=eva group=... of a job that ended (E), or was put back into
// the queue (R).
func (d *Driver) record(line string) (batch.Ended, bool, error) {
	parts := strings.SplitN(line, ";", 4)
	if len(parts) != 4 {
		return batch.Ended{}, false, batch.Garbled(farm.PBS, "the accounting log", errors.New(strconv.Quote(line)))
	}
	if parts[1] != "E" && parts[1] != "R" || strings.Contains(parts[2], "[]") { // an array's own end is not a job's
		return batch.Ended{}, false, nil
	}
	v := values(parts[3])
	seconds := func(key string) time.Time {
		n, err := strconv.ParseInt(v[key], 10, 64)
		if err != nil {
			return time.Time{}
		}
		return time.Unix(n, 0).UTC()
	}
	j := batch.Ended{Job: parts[2], Name: v["jobname"], User: v["user"], Account: v["account"], Queue: v["queue"],
		Hosts: job{Hosts: v["exec_host"]}.on(), Submitted: seconds("ctime"), Started: seconds("start"),
		Finished: seconds("end"), MaxRSS: size(v["resources_used.mem"])}
	if text := v["resources_used.cput"]; text != "" { // of whole seconds
		j.CPUTime = new(span(text))
	}
	j.CPUs, _ = strconv.Atoi(v["Resource_List.ncpus"])
	if j.Finished.IsZero() {
		// the log's own times are the server's
		t, err := time.ParseInLocation("01/02/2006 15:04:05", parts[0], time.Local)
		if err != nil {
			return j, false, batch.Garbled(farm.PBS, "the accounting log", err)
		}
		j.Finished = t.UTC()
	}
	if slices.Contains(d.o.Users, j.User) {
		j.Reservation = batch.ReservationOf(j.Name)
	}
	exit, err := strconv.Atoi(v["Exit_status"])
	if err != nil && parts[1] == "E" {
		return j, false, batch.Garbled(farm.PBS, "the accounting log", errors.New(strconv.Quote(line)))
	}
	j.Outcome, j.Code, j.Signal = outcome(exit, parts[1] == "R")
	return j, true, nil
}

// outcome reads Exit_status: 256 and a signal, or less than 0 where it was not the job (JOB_EXEC_* in PBS's job.h).
func outcome(exit int, requeued bool) (o batch.Outcome, code, signal int) {
	const term, kill = 15, 9
	switch {
	case requeued:
		return batch.OutcomeCancelled, 0, 0
	case exit == 0:
		return batch.OutcomeDone, 0, 0
	case exit == 256+term, exit == 256+kill: // qdel's; a job that ends so by itself cannot be told from it
		return batch.OutcomeCancelled, 0, exit - 256
	case exit > 256:
		return batch.OutcomeFailed, 0, exit - 256
	case exit == -29, exit == -28: // JOB_EXEC_KILL_WALLTIME, ..._CPUT
		return batch.OutcomeTimeout, 0, 0
	case exit == -27, exit == -26: // JOB_EXEC_KILL_MEM, ..._VMEM
		return batch.OutcomeMemory, 0, 0
	case exit < 0:
		return batch.OutcomeNode, 0, 0
	}
	return batch.OutcomeFailed, exit, 0
}

// values reads KEY=VALUE with blanks between; a value in double quotes may hold blanks.
func values(text string) map[string]string {
	found := map[string]string{}
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		key, rest, ok := strings.Cut(text, "=")
		if !ok {
			break
		}
		var value string
		if quoted, isQuoted := strings.CutPrefix(rest, `"`); isQuoted {
			value, text, _ = strings.Cut(quoted, `"`)
		} else {
			value, text, _ = strings.Cut(rest, " ")
		}
		found[key] = value
	}
	return found
}
