package pbs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// recorded plays answers of PBS's commands by name, and writes down what changes something.
type recorded struct {
	answers map[string]string // "FAIL text": the command fails so
	did     []string
}

func golden(t *testing.T) *recorded {
	t.Helper()
	r := &recorded{answers: map[string]string{}}
	for name, file := range map[string]string{"qstat": "qstat.json", "pbsnodes": "pbsnodes.json"} {
		text, err := os.ReadFile("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		r.answers[name] = string(text)
	}
	return r
}

func (r *recorded) driver(o DriverOptions) *Driver {
	return NewDriver(o, func(_ context.Context, c program.Call) ([]byte, error) {
		name := filepath.Base(c.Path)
		if !slices.Contains(c.Args, "-F") {
			r.did = append(r.did, name+" "+strings.Join(c.Args, " "))
			return nil, nil
		}
		text := r.answers[name]
		if said, failed := strings.CutPrefix(text, "FAIL "); failed {
			return nil, &program.Failed{Program: name, Status: 1, Said: said}
		}
		if i := slices.Index(c.Args, "-v"); i >= 0 { // one node only
			i++
			_, rest, ok := strings.Cut(text, `"`+c.Args[i]+`":{`)
			if !ok {
				return nil, &program.Failed{Program: name, Status: 1, Said: "pbsnodes: Unknown node " + c.Args[i]}
			}
			one, _, _ := strings.Cut(rest, "\n        \"n")
			one, _, _ = strings.Cut(strings.TrimRight(strings.TrimSpace(one), ","), "\n    }\n}")
			return []byte(`{"nodes":{"` + c.Args[i] + `":{` + one + "}}"), nil
		}
		if last := c.Args[len(c.Args)-1]; name == "qstat" && strings.HasSuffix(last, ".head") {
			_, rest, ok := strings.Cut(text, `"`+last+`":{`)
			if !ok {
				return nil, &program.Failed{Program: name, Status: 153, Said: "qstat: Unknown Job Id " + last}
			}
			one, _, _ := strings.Cut(rest, "\n        },")
			return []byte(`{"Jobs":{"` + last + `":{` + one + "}}}"), nil
		}
		return []byte(text), nil
	})
}

func at(text string) time.Time {
	t, err := time.Parse("15:04:05", text)
	if err != nil {
		panic(err)
	}
	return time.Date(2026, 11, 21, t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

func TestDemand(t *testing.T) {
	got, err := golden(t).driver(DriverOptions{}).Demand(t.Context())
	want := []batch.Demand{{Jobs: 3, Image: "sl9", CPUs: 1, Memory: 2 << 30, Account: "cms", Queue: "vm",
		Oldest: at("07:00:00")},
		{Jobs: 1, CPUs: 1, Memory: 1 << 30, Queue: "vm", Oldest: at("08:00:00")}} // a user's job with a name like ours
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v\n%s", err, d)
	}
}

func TestNodes(t *testing.T) {
	got, err := golden(t).driver(DriverOptions{}).Nodes(t.Context())
	want := []batch.Node{
		{Name: "n1", State: batch.NodeBusy, CPUs: 8, Free: 2, Memory: 16316720 << 10, Features: []string{"grange"}},
		{Name: "n2", State: batch.NodeClosed, Closed: true, Ours: true, Reason: "VMs do not start here: disk full",
			CPUs: 4, Memory: 8 << 30},
		{Name: "n3", State: batch.NodeDown, Closed: true, Reason: "memory replaced", CPUs: 4, Memory: 8 << 30},
		{Name: "n4", State: batch.NodeBusy, CPUs: 4, Memory: 8 << 30, Queues: []string{"long"}},
		{Name: "n5", State: batch.NodeDown, CPUs: 4},
	}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v\n%s", err, d)
	}
}

func kindOf(err error) farm.Kind {
	if e := new(farm.Error); errors.As(err, &e) {
		return e.Kind
	}
	return ""
}

// TestClose: the commands that are run, and that what an administrator closed is left alone.
func TestClose(t *testing.T) {
	r := golden(t)
	d := r.driver(DriverOptions{})
	for _, c := range []struct {
		err  error
		kind farm.Kind
		did  string
	}{
		{d.Close(t.Context(), "n1", "disk \"full\""), "", "pbsnodes -C grange: disk  full -o n1"},
		{d.Close(t.Context(), "n2", "again"), "", "pbsnodes -C grange: again -o n2"},
		{d.Close(t.Context(), "n3", "ours"), "", ""},
		{d.Open(t.Context(), "n3"), farm.Conflict, ""},
		{d.Open(t.Context(), "n2"), "", "pbsnodes -C  -r n2"},
		{d.Open(t.Context(), "n1"), "", ""},
		{d.Close(t.Context(), "n9", "x"), farm.NotFound, ""},
		{d.Open(t.Context(), "-x"), farm.NotFound, ""},
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
	want := []batch.Running{{Job: "12.head", User: "eva", Account: "atlas", Ends: at("09:00:00")},
		{Job: "15.head", User: "root", Account: "cloud", Ends: at("10:00:05"), Reservation: "cloud-1"}}
	if d := cmp.Diff(want, jobs); err != nil || d != "" {
		t.Errorf("%v\n%s", err, d)
	}
}

func TestReserve(t *testing.T) {
	r := golden(t)
	d := r.driver(DriverOptions{Hold: "metal"})
	held, err := d.Reserve(t.Context(), batch.Reservation{Name: "cloud-1", Host: "n1", CPUs: 4}) // it is there already
	want := batch.Reserved{Job: "15.head", Held: true, Since: at("08:00:05"),
		Reservation: batch.Reservation{Name: "cloud-1", Account: "cloud", Host: "n1", CPUs: 4, Memory: 1 << 30,
			Queue: "metal",
			Limit: 2 * time.Hour}}
	if d := cmp.Diff(want, held); err != nil || d != "" || len(r.did) > 0 {
		t.Errorf("%v, did %q\n%s", err, r.did, d)
	}
	d.Reserve(t.Context(), batch.Reservation{Name: "cloud-2", Account: "cloud", Host: "n1", CPUs: 2, Memory: 1 << 30,
		Queue: "vm", Limit: time.Hour})
	const submit = "qsub -N grange-hold-cloud-2 -r n -o /dev/null -e /dev/null -l " +
		"select=1:ncpus=2:host=n1:mem=1048576kb -l walltime=3600 -A cloud -q metal -- /bin/sleep infinity"
	if !slices.Equal(r.did, []string{submit}) {
		t.Errorf("%q", r.did)
	}
	r.did = nil
	for _, name := range []string{"cloud-1", "never"} {
		if err := d.Release(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(r.did, []string{"qdel 15.head"}) {
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
	d := golden(t).driver(DriverOptions{})
	got, err := d.Lookup(t.Context(), farm.Allotment{System: farm.PBS, Job: "12.head", Slots: 3})
	if err != nil || got.Account != "atlas" || got.Queue != "vm" || !got.Ends.Equal(at("09:00:00")) || got.Slots != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := d.Lookup(t.Context(), farm.Allotment{Job: "12.head"}); err != nil || got.Slots != 2 ||
		got.Memory != 400<<20 {
		t.Errorf("what nobody told: %+v, %v", got, err)
	}
	for _, id := range []string{"99.head", "", "-x"} {
		if _, err := d.Lookup(t.Context(), farm.Allotment{Job: id}); kindOf(err) != farm.NotFound {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestAway(t *testing.T) {
	r := &recorded{answers: map[string]string{"qstat": "FAIL qstat: cannot connect to server head (errno=15010)",
		"pbsnodes": "{\"nodes\": {"}}
	if _, err := r.driver(DriverOptions{}).Demand(t.Context()); kindOf(err) != farm.Unavailable {
		t.Error(err)
	}
	if _, err := r.driver(DriverOptions{}).Nodes(t.Context()); kindOf(err) != farm.Unavailable {
		t.Error(err)
	}
}

// TestEnded reads a log that grows, over days, in pages, with a line that is half written.
func TestEnded(t *testing.T) {
	dir := t.TempDir()
	d := NewDriver(DriverOptions{Accounting: dir}, nil)
	line := func(kind, id string, end int, more string) string {
		return fmt.Sprintf("11/21/2026 08:00:00;%s;%s;user=eva group=phys account=\"atlas run 3\" jobname=a queue=vm "+
			"ctime=100 qtime=100 etime=100 start=110 exec_host=n1/0*2+n2/1 exec_vnode=(n1:ncpus=2) "+
			"Resource_List.ncpus=3 session=7 end=%d %s resources_used.cput=00:01:02 resources_used.mem=2048kb "+
			"run_count=1\n", kind, id, end, more)
	}
	write := func(day, text string) {
		f, err := os.OpenFile(filepath.Join(dir, day), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		f.WriteString(text)
	}
	var cursor batch.Cursor
	read := func(limit int, want ...string) []batch.Ended {
		t.Helper()
		jobs, next, err := d.Ended(t.Context(), cursor, limit)
		if err != nil {
			t.Fatal(err)
		}
		cursor = next
		var got []string
		for _, j := range jobs {
			got = append(got, fmt.Sprintf("%s %s %d %d", j.Job, j.Outcome, j.Code, j.Signal))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, not %q", got, want)
		}
		return jobs
	}
	read(10)
	write("20261120", line("S", "1.head", 200, "")+line("E", "1.head", 200, "Exit_status=0")+line("E", "2.head", 210,
		"Exit_status=3"))
	write("20261121", line("E", "3.head", 220, "Exit_status=271")+line("E", "4[].head", 230, "Exit_status=0")+line("R",
		"5.head", 235, "")+line("E", "6.head", 240, "Exit_status=-29"))
	write("lost+found", "no log")
	jobs := read(1, "1.head done 0 0")
	if j := jobs[0]; j.User != "eva" || j.Account != "atlas run 3" || j.CPUs != 3 ||
		j.CPUTime == nil || *j.CPUTime != 62*time.Second ||
		j.MaxRSS != 2<<20 || !slices.Equal(j.Hosts, []string{"n1", "n2"}) || j.Started.Unix() != 110 {
		t.Errorf("%+v", j)
	}
	read(2, "2.head failed 3 0", "3.head cancelled 0 15")
	half := line("E", "7.head", 250, "Exit_status=265")
	write("20261121", half[:20])
	read(10, "5.head cancelled 0 0", "6.head timeout 0 0")
	read(10)
	write("20261121", half[20:])
	write("20261122", line("E", "8.head", 300, "Exit_status=-27")+line("E", "9.head", 310, "Exit_status=-3"))
	read(10, "7.head cancelled 0 9", "8.head out of memory 0 0", "9.head node failed 0 0")
	for _, bad := range []batch.Cursor{"x", "20261121+x", "20261121+-1", "20261121+99999999", "../etc+0"} {
		if _, _, err := d.Ended(t.Context(), bad, 1); kindOf(err) != farm.Invalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
