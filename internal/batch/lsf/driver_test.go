package lsf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// recorded plays answers of LSF's commands, cut to what was asked for, and writes down what changes something.
type recorded struct {
	jobs, hosts []record
	fail        string
	did         []string
}

func golden(t *testing.T) (*recorded, *Driver) {
	t.Helper()
	r := &recorded{}
	for file, to := range map[string]*[]record{"bjobs.json": &r.jobs, "bhosts.json": &r.hosts} {
		text, err := os.ReadFile("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		var answer struct{ Records []record }
		if err := json.Unmarshal(text, &answer); err != nil {
			t.Fatal(err)
		}
		*to = answer.Records
	}
	d := NewDriver(DriverOptions{Hold: "metal"}, r.run)
	d.now = func() time.Time { return at("12:00:00") }
	return r, d
}

func at(text string) time.Time {
	t, err := time.Parse("2006-01-02 15:04:05", "2026-11-21 "+text)
	if err != nil {
		panic(err)
	}
	return t
}

func (r *recorded) run(_ context.Context, c program.Call) ([]byte, error) {
	failed := func(said string) ([]byte, error) {
		return nil, &program.Failed{Program: c.Path, Status: 255, Said: said}
	}
	if r.fail != "" {
		return failed(r.fail)
	}
	last := c.Args[len(c.Args)-1]
	var found []record
	switch {
	case c.Path == "bhosts":
		for _, h := range r.hosts {
			if last == hostFields || last == h["HOST_NAME"] {
				found = append(found, h)
			}
		}
		if len(found) == 0 {
			return failed(last + ": Bad host name, host group name or cluster name")
		}
	case c.Path == "bjobs":
		for _, j := range r.jobs {
			ended := j["STAT"] == "DONE" || j["STAT"] == "EXIT"
			if last == jobFields && !ended || last == "-p" && strings.HasPrefix(j["STAT"], "P") || last == "-d" &&
				ended || slices.Contains(c.Args, "-J") && j["JOB_NAME"] == last || slices.Contains(c.Args, "-m") &&
				strings.HasSuffix(j["EXEC_HOST"], last) || last == j.id() {
				found = append(found, j)
			}
		}
		if len(found) == 0 {
			return failed("No matching job found")
		}
	default:
		r.did = append(r.did, c.Path+" "+strings.Join(c.Args, " "))
		return nil, nil
	}
	return json.Marshal(map[string]any{"COMMAND": c.Path, "RECORDS": found})
}

func kindOf(err error) farm.Kind {
	if e := new(farm.Error); errors.As(err, &e) {
		return e.Kind
	}
	return ""
}

func TestDemand(t *testing.T) {
	_, d := golden(t)
	got, err := d.Demand(t.Context())
	want := []batch.Demand{{Jobs: 2, Image: "sl9", CPUs: 1, Memory: 2 << 30, Queue: "vm", Oldest: at("07:00:00")},
		{Jobs: 1, CPUs: 1, Queue: "vm", Oldest: at("08:00:00")}}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v\n%s", err, d)
	}
}

func TestNodes(t *testing.T) {
	_, d := golden(t)
	got, err := d.Nodes(t.Context())
	gigabytes := float64(1 << 30)
	want := []batch.Node{
		{Name: "n1", State: batch.NodeBusy, CPUs: 8, Free: 2, Memory: farm.Bytes(15.6 * gigabytes)},
		{Name: "n2", State: batch.NodeClosed, Closed: true, Ours: true, Reason: "VMs do not start here: disk full",
			CPUs: 4, Memory: 8 << 30},
		{Name: "n3", State: batch.NodeClosed, Closed: true, Reason: "memory replaced", CPUs: 4, Memory: 8 << 30},
		{Name: "n4", State: batch.NodeBusy, CPUs: 4, Memory: 8 << 30},
		{Name: "n5", State: batch.NodeDown, CPUs: 4},
	}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v\n%s", err, d)
	}
}

func TestClose(t *testing.T) {
	r, d := golden(t)
	for _, c := range []struct {
		err  error
		kind farm.Kind
		did  string
	}{
		{d.Close(t.Context(), "n1", "disk full"), "", "badmin hclose -C grange: disk full n1"},
		{d.Close(t.Context(), "n3", "ours"), "", ""},
		{d.Open(t.Context(), "n3"), farm.Conflict, ""},
		{d.Open(t.Context(), "n2"), "", "badmin hopen n2"},
		{d.Open(t.Context(), "n4"), "", ""}, // full, not closed
		{d.Close(t.Context(), "n9", "x"), farm.NotFound, ""},
		{d.Open(t.Context(), "-all"), farm.NotFound, ""},
	} {
		if kindOf(c.err) != c.kind || c.kind == "" && c.err != nil {
			t.Errorf("%q: %v", c.did, c.err)
		}
		if c.did != "" {
			if len(r.did) == 0 || r.did[0] != c.did {
				t.Fatalf("%q, not %q", r.did, c.did)
			}
			r.did = r.did[1:]
		}
	}
	if len(r.did) > 0 {
		t.Errorf("and %q", r.did)
	}
	jobs, err := d.Drain(t.Context(), "n1", "kernel")
	want := []batch.Running{{Job: "17", User: "eva", Account: "atlas", Ends: at("09:00:00")},
		{Job: "21", User: "lsfadmin", Account: "cloud", Ends: at("10:00:05"), Reservation: "cloud-1"}}
	if d := cmp.Diff(want, jobs); err != nil || d != "" {
		t.Errorf("%v\n%s", err, d)
	}
}

func TestReserve(t *testing.T) {
	r, d := golden(t)
	held, err := d.Reserve(t.Context(), batch.Reservation{Name: "cloud-1", Host: "n1", CPUs: 4}) // it is there already
	want := batch.Reserved{Job: "21", Held: true, Since: at("08:00:05"),
		Reservation: batch.Reservation{Name: "cloud-1", Account: "cloud", Host: "n1", CPUs: 4, Memory: 1 << 30,
			Queue: "metal",
			Limit: 2 * time.Hour}}
	if d := cmp.Diff(want, held); err != nil || d != "" || len(r.did) > 0 {
		t.Errorf("%v, did %q\n%s", err, r.did, d)
	}
	d.Reserve(t.Context(), batch.Reservation{Name: "cloud-2", Account: "cloud", Host: "n1", CPUs: 2, Memory: 1 << 30,
		Queue: "vm", Limit: time.Hour})
	const submit = "bsub -J grange-hold-cloud-2 -m n1 -n 2 -R span[hosts=1] -rn -o /dev/null -M 1048576KB -R " +
		"rusage[mem=1048576KB] -W 60 -P cloud -q metal sleep infinity"
	if !slices.Equal(r.did, []string{submit}) {
		t.Errorf("%q", r.did)
	}
	r.did = nil
	for _, name := range []string{"cloud-1", "never", "a b"} {
		if err := d.Release(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(r.did, []string{"bkill -s KILL 21"}) { // and not the job of somebody who called his the same
		t.Errorf("%q", r.did)
	}
	for _, b := range []batch.Reservation{{Name: "big", Host: "n1", CPUs: 99}, {Name: "lost", Host: "n9", CPUs: 1},
		{Name: "a b", Host: "n1", CPUs: 1}} {
		if _, err := d.Reserve(t.Context(), b); err == nil {
			t.Errorf("%+v is reserved", b)
		}
	}
}

func TestLookup(t *testing.T) {
	r, d := golden(t)
	got, err := d.Lookup(t.Context(), farm.Allotment{System: farm.LSF, Job: "17", Slots: 3})
	if err != nil || got.Account != "atlas" || got.Queue != "vm" || !got.Ends.Equal(at("09:00:00")) || got.Slots != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := d.Lookup(t.Context(), farm.Allotment{Job: "17"}); err != nil || got.Slots != 2 ||
		got.Memory != 400<<20 {
		t.Errorf("what nobody told: %+v, %v", got, err)
	}
	for _, id := range []string{"99", "18[1]", "", "-u", "0"} {
		if _, err := d.Lookup(t.Context(), farm.Allotment{Job: id}); kindOf(err) != farm.NotFound {
			t.Errorf("%q: %v", id, err)
		}
	}
	r.fail = "batch system daemon not responding ... still trying"
	if _, err := d.Lookup(t.Context(), farm.Allotment{Job: "17"}); kindOf(err) != farm.Unavailable {
		t.Error(err)
	}
}

// TestEnded reads what mbatchd lists while it grows and is cleaned.
func TestEnded(t *testing.T) {
	r, d := golden(t)
	end := func(id, clock, code, reason string) {
		state := "EXIT"
		if code == "0" {
			state = "DONE"
		}
		r.jobs = append(r.jobs, record{"JOBID": id, "JOBINDEX": "0", "STAT": state, "USER": "eva", "QUEUE": "vm",
			"PROJ_NAME": "atlas", "SLOTS": "2", "START_TIME": "Nov 21 08:00:00 2026",
			"FINISH_TIME": "Nov 21 " + clock + " 2026", "EXEC_HOST": "2*n1:n2", "EXIT_CODE": code,
			"EXIT_REASON": reason, "CPU_USED": "62.5 second(s)", "MAX_MEM": "200 Mbytes"})
	}
	var cursor batch.Cursor
	read := func(limit int, want ...string) {
		t.Helper()
		jobs, next, err := d.Ended(t.Context(), cursor, limit)
		if err != nil {
			t.Fatal(err)
		}
		cursor = next
		var got []string
		for _, j := range jobs {
			got = append(got, fmt.Sprintf("%s %s %d", j.Job, j.Outcome, j.Code))
			if j.CPUs != 2 || j.CPUTime == nil || *j.CPUTime != 62500*time.Millisecond || j.MaxRSS != 200<<20 ||
				!slices.Equal(j.Hosts, []string{"n1", "n2"}) {
				t.Errorf("%+v", j)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, not %q", got, want)
		}
	}
	read(10)
	end("31", "08:10:00", "0", "-")
	end("30", "08:05:00", "3", "-")
	end("32", "08:11:00", "130", "TERM_OWNER: job killed by owner")
	read(2, "30 failed 3", "31 done 0")
	end("29", "08:09:00", "140", "TERM_RUNLIMIT: job killed after reaching LSF run time limit") // told late
	read(2, "29 timeout 0", "32 cancelled 0")
	read(2)
	// CLEAN_PERIOD
	r.jobs = slices.DeleteFunc(r.jobs, func(j record) bool { return j["JOBID"] == "30" || j["JOBID"] == "31" })
	end("33", "08:20:00", "137", "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit")
	read(10, "33 out of memory 0")
	read(10)
	if _, _, err := d.Ended(t.Context(), "x", 1); kindOf(err) != farm.Invalid {
		t.Error(err)
	}
}
