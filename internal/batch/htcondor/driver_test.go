package htcondor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/batchtest"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// answers plays what HTCondor's commands printed, by name.
type answers map[string]string

func (a answers) driver(o DriverOptions) *Driver {
	o.ReserveAs = "nobody"
	return NewDriver(o, func(_ context.Context, c program.Call) ([]byte, error) {
		text, ok := a[c.Path]
		if said, failed := strings.CutPrefix(text, "FAIL "); failed || !ok {
			return nil, &program.Failed{Program: c.Path, Status: 1, Said: said}
		}
		return []byte(text), nil
	})
}

func pool(t *testing.T) answers {
	return answers{"condor_status": batchtest.Recorded(t, "status-23.9.json"), "condor_q": batchtest.Recorded(t, "queue-23.9.json")}
}

func TestNodes(t *testing.T) {
	got, err := pool(t).driver(DriverOptions{}).Nodes(t.Context())
	want := []batch.Node{{Name: "ex1", State: batch.NodeBusy, CPUs: 4, Free: 2, Memory: 8000 * farm.MiB,
		Features: []string{"micro"}},
		{Name: "ex2", State: batch.NodeClosed, Closed: true, Ours: true, Reason: "three VMs", CPUs: 4,
			Memory: 8000 * farm.MiB, Features: []string{"micro"}}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	const one = `[{"Machine": "m", "Name": "slot1@m", "SlotType": "%s", "State": "%s", "Activity": "%s", "Cpus": 3, "TotalSlotCpus": 3, "TotalSlotMemory": 100, "GrangeClosed": "%s", "DrainReason": "%s"}]`
	for name, c := range map[string]struct {
		ad   []any
		want batch.Node
	}{
		"drained over our closing": {[]any{"Partitionable", "Drained", "Idle", "grange: ours", "disk"},
			batch.Node{State: batch.NodeClosed, Closed: true, Reason: "disk", CPUs: 3}},
		"draining, jobs go on": {[]any{"Partitionable", "Drained", "Retiring", "", "disk"},
			batch.Node{State: batch.NodeClosed, Closed: true, Reason: "disk", CPUs: 3}},
		"GrangeClosed by hand": {[]any{"Partitionable", "Unclaimed", "Idle", "Eva's", ""},
			batch.Node{State: batch.NodeClosed, Closed: true, Reason: "Eva's", CPUs: 3}},
		"its owner's": {[]any{"Partitionable", "Owner", "Idle", "", ""},
			batch.Node{State: batch.NodeClosed, Closed: true, Reason: "its START takes no job", CPUs: 3}},
		"a static slot, claimed": {[]any{"Static", "Claimed", "Busy", "", ""},
			batch.Node{State: batch.NodeBusy, CPUs: 3}},
		"a static slot, free": {[]any{"Static", "Unclaimed", "Idle", "", ""},
			batch.Node{State: batch.NodeIdle, CPUs: 3, Free: 3}},
	} {
		got, err := answers{"condor_status": fmt.Sprintf(one, c.ad...),
			"condor_q": ""}.driver(DriverOptions{}).Nodes(t.Context())
		c.want.Name, c.want.Memory = "m", 100*farm.MiB
		if diff := cmp.Diff([]batch.Node{c.want}, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
	for _, garbage := range []string{"hello", `[{"Name": "slot1"}]`, "{}"} {
		if _, err := (answers{"condor_status": garbage, "condor_q": ""}).driver(DriverOptions{}).Nodes(
			t.Context()); !farm.IsKind(err, farm.Unavailable) {
			t.Errorf("%q: %v", garbage, err)
		}
	}
	if _, err := (answers{"condor_status": "FAIL Error: Couldn't contact the condor_collector on 10.0.0.1"}).driver(
		DriverOptions{}).Nodes(t.Context()); !farm.IsKind(err, farm.Unavailable) {
		t.Errorf("away: %v", err)
	}
}

func TestDemand(t *testing.T) {
	// The command picks pending jobs; this one plays an expression where users write one.
	const pending = `[{"GlobalJobId": "a#1.0#1", "ClusterId": 1, "ProcId": 0, "JobStatus": 1, "Owner": "eva", "AcctGroup": "physics", "RequestCpus": 2, "RequestMemory": 512, "QDate": 1795253159, "VMImage": "sl9", "VMShape": "big"},
{"GlobalJobId": "a#1.1#1", "ClusterId": 1, "ProcId": 1, "JobStatus": 1, "Owner": "eva", "AcctGroup": "physics", "RequestCpus": 2, "RequestMemory": 512, "QDate": 1795253100, "VMImage": "sl9", "VMShape": "big"},
{"GlobalJobId": "a#2.0#1", "ClusterId": 2, "ProcId": 0, "JobStatus": 1, "Owner": "eva", "RequestCpus": "/Expr(ifThenElse(x,1,2))/", "RequestMemory": "/Expr(MemoryUsage)/", "QDate": 1795253159, "VMImage": "/Expr(x)/"}]`
	got, err := answers{"condor_q": pending}.driver(DriverOptions{}).Demand(t.Context())
	want := []batch.Demand{{Jobs: 2, Image: "sl9", Shape: "big", CPUs: 2, Memory: 512 * farm.MiB, Account: "physics",
		Oldest: time.Unix(1795253100, 0).UTC()}, {Jobs: 1, CPUs: 1, Oldest: time.Unix(1795253159, 0).UTC()}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if got, err := (answers{"condor_q": ""}).driver(DriverOptions{}).Demand(t.Context()); err != nil || len(got) > 0 {
		t.Errorf("an empty queue: %v, %v", got, err)
	}
}

func TestLookup(t *testing.T) {
	d := pool(t).driver(DriverOptions{})
	got, err := d.Lookup(t.Context(), farm.Allotment{System: farm.HTCondor, Job: "ex1#1.2", Slots: 2})
	if err != nil || got.Account != "physics" || !got.Ends.Equal(time.Unix(1795253160+3600, 0)) || got.Slots != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	// pending, of another access point, and none at all
	for _, id := range []string{"ex1#1.3", "other#1.2", "x", "1; rm", "", "ex1#1.2 || True"} {
		if got, err := d.Lookup(t.Context(), farm.Allotment{Job: id}); !farm.IsKind(err, farm.NotFound) {
			t.Errorf("%q: %+v, %v", id, got, err)
		}
	}
}

// TestEnded reads a history while it grows, is rotated and thrown away: each job once.
func TestEnded(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "history")
	whole := batchtest.Recorded(t, "history-23.9.txt")
	d := answers{}.driver(DriverOptions{History: path})
	var cursor batch.Cursor
	var got []string
	read := func(limit int) []batch.Ended {
		t.Helper()
		jobs, next, err := d.Ended(t.Context(), cursor, limit)
		if err != nil {
			t.Fatal(err)
		}
		cursor = next
		for _, j := range jobs {
			got = append(got, j.Job)
		}
		return jobs
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if jobs := read(10); len(jobs) > 0 || cursor != "" {
		t.Errorf("no history: %v, %q", jobs, cursor)
	}
	half := strings.Index(whole, "*** Offset = 3719") + 20 // in the line that ends the second
	write("history", whole[:half])
	first := read(10)
	want := batch.Ended{Job: "ex1#1.0", User: "nobody", Account: "physics", Hosts: []string{"ex1"}, CPUs: 2,
		Submitted: time.Unix(1795253159, 0).UTC(), Started: time.Unix(1795253160, 0).UTC(),
		Finished: time.Unix(1795253160, 0).UTC(), Outcome: batch.OutcomeFailed, Code: 3}
	if len(first) != 1 {
		t.Fatalf("of one and a half: %+v", first)
	}
	want.MaxRSS, want.CPUTime, want.Started = first[0].MaxRSS, first[0].CPUTime, first[0].Started
	if diff := cmp.Diff(want, first[0]); diff != "" || first[0].Started.IsZero() {
		t.Error(diff)
	}
	// The rest, and then the file is moved away and a new one begun, as HTCondor does.
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	file.WriteString(whole[half:])
	file.Close()
	if err := os.Rename(path, path+".20261121T093000"); err != nil {
		t.Fatal(err)
	}
	write("history", strings.ReplaceAll(whole, "#1.", "#2."))
	rest := read(2)
	if len(rest) != 2 || rest[0].Code != 1 || rest[0].Outcome != batch.OutcomeFailed ||
		rest[1].Outcome != batch.OutcomeCancelled || rest[1].Finished.IsZero() || len(rest[1].Hosts) > 0 {
		t.Errorf("%+v", rest)
	}
	read(2)
	// What was read is thrown away: nothing comes twice.
	if err := os.Remove(path + ".20261121T093000"); err != nil {
		t.Fatal(err)
	}
	read(100)
	if jobs := read(100); len(jobs) > 0 {
		t.Errorf("read again: %+v", jobs)
	}
	if want := []string{"ex1#1.0", "ex1#1.1", "ex1#1.4", "ex1#2.0", "ex1#2.1", "ex1#2.4"}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
	// Another file of the same inode is not taken for the one that was read.
	before := cursor
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(strings.ReplaceAll(whole, "#1.", "#3."), "ClusterId = 1 ",
		"ClusterId = 3 ")), 0o644); err != nil {
		t.Fatal(err)
	}
	if jobs, _, err := d.Ended(t.Context(), before, 100); err != nil || len(jobs) != 3 || jobs[0].Job != "ex1#3.0" {
		t.Errorf("a file that took the other's place: %+v, %v", jobs, err)
	}
	for _, bad := range []batch.Cursor{"x", "1:2", "0:5:1.0", "1:-5:1.0", "1:5:1.0:2", "01:5:1.0", " 1:5:1.0"} {
		if _, _, err := d.Ended(t.Context(), bad, 1); !farm.IsKind(err, farm.Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	write("history", "no ad\n*** Offset = 0 ClusterId = 1 ProcId = 0\n")
	if _, _, err := d.Ended(t.Context(), "", 1); !farm.IsKind(err, farm.Unavailable) {
		t.Errorf("garbage: %v", err)
	}
}

func TestReserve(t *testing.T) {
	text := placeholder(batch.Reservation{Name: "vm-1", Account: "physics", Host: `a"b`, CPUs: 2,
		Memory: 100*farm.MiB + 1,
		Limit:  90 * time.Minute})
	for _, line := range []string{"request_cpus = 2", "request_memory = 101",
		`requirements = Machine == "a\"b" && TARGET.DynamicSlot =!= True`, "+WantVM = False", `+GrangeBooking = "vm-1"`,
		"periodic_remove = JobStatus == 5 || JobStatus == 2 && time() - JobCurrentStartDate > 5400",
		"accounting_group = physics"} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
	const held = `[{"GlobalJobId": "a#7.0#1", "ClusterId": 7, "ProcId": 0, "JobStatus": 2, "Owner": "%s", "RequestCpus": 2, "RequestMemory": 100, "JobCurrentStartDate": 1795253160, "RemoteHost": "slot1_1@m", "GrangeBooking": "vm-1", "GrangeHost": "m", "GrangeLimit": 60}]`
	got, err := answers{"condor_q": fmt.Sprintf(held, "nobody")}.driver(DriverOptions{}).Reserved(t.Context(), "vm-1")
	want := batch.Reserved{Job: "a#7.0", Held: true, Since: time.Unix(1795253160, 0).UTC(),
		Reservation: batch.Reservation{Name: "vm-1", Host: "m", CPUs: 2, Memory: 100 * farm.MiB, Limit: time.Minute}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	// Anybody may write such an attribute into their own job.
	if _, err := (answers{"condor_q": fmt.Sprintf(held, "mallory")}).driver(DriverOptions{}).Reserved(t.Context(),
		"vm-1"); !farm.IsKind(err, farm.NotFound) {
		t.Errorf("somebody else's: %v", err)
	}
	for _, b := range []batch.Reservation{{Name: "a", Host: "m", CPUs: 1, Queue: "main"},
		{Name: "a b", Host: "m", CPUs: 1},
		{Name: "a", Host: "ex1", CPUs: 99}} {
		a := pool(t)
		a["condor_q"] = ""
		if _, err := a.driver(DriverOptions{}).Reserve(t.Context(), b); !farm.IsKind(err, farm.Invalid) {
			t.Errorf("%+v: %v", b, err)
		}
	}
}
