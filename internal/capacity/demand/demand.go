// Package demand reads the jobs of a recorded time: of Slurm's sacct, of grange's own usage, or of a trace of arrivals.
package demand

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/capacity"
	"github.com/grange-project/grange/internal/farm"
)

// Recorded is the jobs of a time, which begins with the first of them.
type Recorded struct {
	Jobs    []capacity.Job
	Begin   time.Time     // zero: the record does not say
	Until   time.Duration // from the first submission to the last end
	Skipped int           // lines that are no job that ran: steps, jobs that were cancelled before they started
}

// Read reads a record, whichever it is: the first line tells.
func Read(r io.Reader) (Recorded, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	first, err := b.Peek(1)
	if err != nil {
		return Recorded{}, invalid("the record is empty")
	}
	if first[0] == '{' {
		return readTrace(b)
	}
	head, err := b.ReadString('\n')
	if err != nil {
		return Recorded{}, invalid("the record has one line, and no jobs")
	}
	comma := '|'
	if !strings.Contains(head, "|") {
		comma = ','
	}
	lines := csv.NewReader(io.MultiReader(strings.NewReader(head), b))
	lines.Comma, lines.FieldsPerRecord, lines.ReuseRecord, lines.LazyQuotes = comma, -1, true, true
	return readLines(lines)
}

// longest is more than any job and any record is, and can be added up.
const longest = 100 * 365 * 24 * time.Hour

// found is a job with the time at which it was submitted.
type found struct {
	at  time.Time
	job capacity.Job
}

func readLines(lines *csv.Reader) (out Recorded, err error) {
	head, err := lines.Read()
	if err != nil {
		return out, err
	}
	read, err := reader(head)
	if err != nil {
		return out, err
	}
	var jobs []found
	for {
		line, err := lines.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return out, invalid(err.Error())
		}
		if len(jobs) == capacity.MaxJobs {
			return out, invalid(fmt.Sprintf("the record has more than %d jobs", capacity.MaxJobs))
		}
		at, job, ok, err := read(line)
		if err != nil {
			n, _ := lines.FieldPos(0)
			return out, invalid(fmt.Sprintf("line %d: %v", n, err))
		}
		if job.Wall > longest || job.Memory > farm.MaxMemory || job.CPUs > farm.MaxCPUs {
			n, _ := lines.FieldPos(0)
			return out, invalid(fmt.Sprintf("line %d: such a job makes no sense", n))
		}
		if !ok {
			out.Skipped++
			continue
		}
		jobs = append(jobs, found{at, job})
	}
	if len(jobs) == 0 {
		return out, invalid("the record has no job that ran")
	}
	slices.SortStableFunc(jobs, func(a, b found) int { return a.at.Compare(b.at) })
	out.Begin = jobs[0].at
	if jobs[len(jobs)-1].at.Sub(out.Begin) > longest {
		return out, invalid("the record spans more than a hundred years")
	}
	for _, f := range jobs {
		f.job.Submit = f.at.Sub(out.Begin)
		out.Until = max(out.Until, f.job.Submit+f.job.Wall)
		out.Jobs = append(out.Jobs, f.job)
	}
	return out, nil
}

// columns are where a record has what is needed, by any of its names.
type columns map[string]int

func columnsOf(head []string) columns {
	c := columns{}
	for i, name := range head {
		c[strings.ToLower(strings.TrimSpace(name))] = i
	}
	return c
}

// text is the first of some columns that a line has; "": none, or it is empty there.
func (c columns) text(line []string, names ...string) string {
	for _, n := range names {
		if i, ok := c[n]; ok && i < len(line) && line[i] != "" {
			return line[i]
		}
	}
	return ""
}

func (c columns) has(names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool { _, ok := c[n]; return ok })
}

// line reads a job; ok is false for what is none.
type line func([]string) (at time.Time, job capacity.Job, ok bool, err error)

func reader(head []string) (line, error) {
	c := columnsOf(head)
	switch {
	case c.has("wall_seconds") && c.has("cores"):
		return c.usage, nil
	case c.has("submit", "start") && c.has("elapsedraw", "elapsed") && c.has("alloccpus", "reqcpus", "ncpus") &&
		c.has("reqmem"):
		return c.sacct, nil
	}
	return nil, invalid("the record has not the columns of sacct, or of `grange usage export --format csv`")
}

// usage reads a line of `grange usage export --format csv`.
func (c columns) usage(l []string) (at time.Time, job capacity.Job, ok bool, err error) {
	wall, err1 := strconv.ParseFloat(c.text(l, "wall_seconds"), 64)
	cores, err2 := strconv.Atoi(c.text(l, "cores"))
	memory, err3 := strconv.ParseUint(c.text(l, "memory"), 10, 62)
	at, err4 := time.Parse(time.RFC3339Nano, c.text(l, "start"))
	if !(wall <= longest.Seconds()) {
		return at, job, false, fmt.Errorf("invalid time %g", wall)
	}
	job = capacity.Job{Wall: time.Duration(wall * float64(time.Second)), CPUs: cores,
		Memory: max(farm.Bytes(memory), farm.MinMemory)} // jobs without a VM have none
	return at, job, cores > 0 && wall >= 0, cmp.Or(err1, err2, err3, err4)
}

// sacct reads a line of `sacct --parsable2`.
func (c columns) sacct(l []string) (at time.Time, job capacity.Job, ok bool, err error) {
	if strings.Contains(c.text(l, "jobid", "jobidraw"), ".") {
		return at, job, false, nil // a step
	}
	submitted := c.text(l, "submit", "start")
	wall, err1 := elapsed(c.text(l, "elapsedraw", "elapsed"))
	cpus, err2 := strconv.Atoi(c.text(l, "alloccpus", "ncpus", "reqcpus"))
	if submitted == "Unknown" || submitted == "" || err1 == nil && wall == 0 || err2 == nil && cpus == 0 {
		return at, job, false, nil
	}
	nodes, _ := strconv.Atoi(c.text(l, "allocnodes", "nnodes"))
	memory, err3 := requested(c.text(l, "reqmem"), cpus, max(nodes, 1))
	at, err4 := time.Parse("2006-01-02T15:04:05", submitted)
	return at, capacity.Job{Wall: wall, CPUs: cpus, Memory: memory}, true, cmp.Or(err1, err2, err3, err4)
}

// elapsed reads seconds, or [days-][hours:]minutes:seconds.
func elapsed(text string) (time.Duration, error) {
	if n, err := strconv.ParseInt(text, 10, 32); err == nil && n >= 0 {
		return time.Duration(n) * time.Second, nil
	}
	days, rest, ok := strings.Cut(text, "-")
	if !ok {
		days, rest = "0", text
	}
	whole, _, _ := strings.Cut(rest, ".")
	parts := strings.Split(whole, ":")
	sum, err := strconv.ParseUint(days, 10, 16)
	if err != nil || len(parts) < 2 || len(parts) > 3 {
		return 0, fmt.Errorf("invalid time %q", text)
	}
	clock := uint64(0)
	for _, part := range parts {
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("invalid time %q", text)
		}
		clock = 60*clock + n
	}
	return time.Duration(24*3600*sum+clock) * time.Second, nil
}

// requested reads memory as sacct tells it: 4000M, or, until 21.08, 2Gc for a CPU and 16Gn for a node.
func requested(text string, cpus, nodes int) (farm.Bytes, error) {
	times := 1
	switch {
	case strings.HasSuffix(text, "c"):
		text, times = strings.TrimSuffix(text, "c"), cpus
	case strings.HasSuffix(text, "n"):
		text, times = strings.TrimSuffix(text, "n"), nodes
	}
	n, err := farm.ParseBytes(text)
	if err != nil || n > farm.MaxMemory/farm.Bytes(max(times, 1)) {
		return 0, cmp.Or(err, fmt.Errorf("invalid memory %q", text))
	}
	return max(n*farm.Bytes(times), farm.MinMemory), nil
}

func invalid(message string) error {
	return &farm.Error{Kind: farm.Invalid, Code: capacity.CodeDemand, Message: message,
		Hint: "take what `sacct --allusers --parsable2 --format=JobID,Submit,ElapsedRaw,AllocCPUS,ReqMem,State` prints, " +
			"or `grange usage export --format csv`"}
}
