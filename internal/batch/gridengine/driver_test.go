package gridengine

import (
	"bytes"
	"compress/gzip"
	"context"
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

// plays is a cell that answers by a command's name and its first arguments; the longest match counts.
type plays map[string]string

func (p plays) driver(o DriverOptions) *Driver {
	o.User = "root"
	return NewDriver(&Cell{Run: func(_ context.Context, c program.Call) ([]byte, error) {
		line, best := c.Path+" "+strings.Join(c.Args, " "), ""
		for start := range p {
			if strings.HasPrefix(line, start) && len(start) >= len(best) {
				best = start
			}
		}
		if said, failed := strings.CutPrefix(p[best], "FAIL "); failed || best == "" {
			return nil, &program.Failed{Program: c.Path, Status: 1, Said: said}
		}
		return []byte(p[best]), nil
	}}, o)
}

func real819(t *testing.T) plays {
	return plays{
		"qstat -u * -s p -r -ext -xml": batchtest.Recorded(t, "qstat-ext-8.1.9.xml"),
		"qstat -u * -s ha -xml":        batchtest.Recorded(t, "qstat-later-8.1.9.xml"),
		"qstat ":                       batchtest.Recorded(t, "qstat-8.1.9.xml"), "qstat -j ": batchtest.Recorded(t, "qstat-j-8.1.9.xml"),
		"qhost ":      batchtest.Recorded(t, "qhost-8.1.9.xml"),
		"qconf -srqs": batchtest.Recorded(t, "quotas-8.1.9.txt"), "qconf -sq ": "qname vm.q\nh_rt INFINITY\n",
	}
}

func at(text string) time.Time { return moment("2026-11-21T" + text) }

func TestDemand(t *testing.T) {
	cell := real819(t)
	// The recording has all jobs, as `-s p` has not.
	all := cell["qstat "]
	from, to := strings.Index(all, "<queue_info>"), strings.Index(all, "</queue_info>")
	cell["qstat -u * -s p -r -xml"] = all[:from+len("<queue_info>")] + all[to:]
	got, err := cell.driver(DriverOptions{}).Demand(t.Context())
	want := []batch.Demand{{Jobs: 2, CPUs: 1, Queue: "vm.q", Oldest: at("08:32:37")},
		{Jobs: 1, Image: "sl9", CPUs: 2, Memory: 512 * farm.MiB, Account: "physics", Queue: "vm.q",
			Oldest: at("08:32:37")}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	got, err = cell.driver(DriverOptions{Wishes: map[string]batch.Demand{"sl9": {Image: "alma9",
		Shape: "big"}}}).Demand(t.Context())
	if err != nil || len(got) != 2 || got[1].Image != "alma9" || got[1].Shape != "big" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, garbage := range []string{"", "hello", "<job_info><queue_info><job_list/></queue_info></job_info>",
		strings.Replace(cell["qstat -u * -s p -r -xml"], "256M", "much", 1),
		strings.Replace(cell["qstat -u * -s p -r -xml"], "<tasks>1,2", "<tasks>1-", 1)} {
		cell["qstat -u * -s p -r -xml"] = garbage
		if _, err := cell.driver(DriverOptions{}).Demand(t.Context()); !farm.IsKind(err, farm.Unavailable) {
			t.Errorf("%.80q: %v", garbage, err)
		}
	}
}

// TestStrangeNames: qstat prints what users chose as it is.
func TestStrangeNames(t *testing.T) {
	text := strings.Replace(batchtest.Recorded(t, "qstat-8.1.9.xml"), "<JB_name>sleep<", "<JB_name>\x01 \xff & <b> ]]> %lt;<", 1)
	if jobs, err := parseJobs(text); err != nil || len(jobs) != 8 {
		t.Errorf("%d jobs, %v", len(jobs), err)
	}
}

func TestNodes(t *testing.T) {
	cell := real819(t)
	d := cell.driver(DriverOptions{})
	got, err := d.Nodes(t.Context())
	want := []batch.Node{
		{Name: "sge2", State: batch.NodeClosed, Closed: true, Reason: "all its queues are disabled", CPUs: 4,
			Queues: []string{"metal.q", "vm.q"}},
		{Name: "sgem", State: batch.NodeBusy, CPUs: 4, Queues: []string{"metal.q", "vm.q"}}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if err := d.Open(t.Context(), "sge2"); !farm.IsKind(err, farm.Conflict) {
		t.Errorf("opened what is disabled: %v", err)
	}
	hosts := cell["qhost "]
	for state, c := range map[string]batch.Node{
		"":   {State: batch.NodeClosed, Closed: true, Ours: true, Reason: "a b " + strings.Repeat("x", 200)},
		"u":  {State: batch.NodeDown, Closed: true, Ours: true, Reason: "a b " + strings.Repeat("x", 200)},
		"du": {State: batch.NodeDown, Closed: true, Reason: "all its queues are disabled"},
		"a":  {State: batch.NodeClosed, Closed: true, Ours: true, Reason: "a b " + strings.Repeat("x", 200)},
	} {
		cell["qhost "] = strings.ReplaceAll(hosts, "'state_string'>d<", "'state_string'>"+state+"<")
		nodes, err := d.Nodes(t.Context())
		if err != nil || len(nodes) != 2 || nodes[0].State != c.State || nodes[0].Closed != c.Closed ||
			nodes[0].Ours != c.Ours || nodes[0].Reason != c.Reason || nodes[0].Free != 0 {
			t.Errorf("%q: %+v, %v", state, nodes, err)
		}
	}
	delete(cell, "qconf -srqs")
	cell["qconf -srqs"] = "FAIL No resource quota set found"
	cell["qhost "] = strings.ReplaceAll(hosts, "'state_string'>d<", "'state_string'>E<")
	if nodes, err := d.Nodes(t.Context()); err != nil || nodes[0].State != batch.NodeDown || nodes[0].Closed ||
		!strings.Contains(nodes[0].Reason, "error") {
		t.Errorf("%+v, %v", nodes, err)
	}
	// One limit over both queues of a host, with one slot left.
	cell["qhost "] = strings.Replace(strings.ReplaceAll(hosts, "'state_string'>d<", "'state_string'><"),
		" <queue name='metal.q'>", "<resourcevalue name='slots' "+
			"dominance='hc'>1.000000</resourcevalue><resourcevalue name='mem_total' "+
			"dominance='hl'>1.5T</resourcevalue> "+
			"<queue name='metal.q'>", 1)
	if nodes, err := d.Nodes(t.Context()); err != nil || nodes[0].CPUs != 3 || nodes[0].Free != 1 ||
		nodes[0].Memory != 1536*farm.GiB || nodes[0].State != batch.NodeBusy {
		t.Errorf("%+v, %v", nodes, err)
	}
}

// TestReasons: what Grid Engine's descriptions cannot hold comes back all the same.
func TestReasons(t *testing.T) {
	for _, reason := range []string{"grange: three VMs", "grange: a  b   c", "grange: 100%, {x} = \"y\" # z \\",
		"grange: é 2%2C"} {
		text := quotaText("n1.example.org", reason)
		if got := parseQuotas(text)["n1.example.org"]; got != reason {
			t.Errorf("%q came back as %q", reason, got)
		}
		if line := strings.Split(text, "\n")[2]; strings.ContainsAny(line, "{}#,\"\\") ||
			strings.Contains(strings.TrimSpace(line)[len("description  "):], "  ") {
			t.Errorf("Grid Engine trips over %q", line)
		}
	}
	if got := parseQuotas(strings.Replace(quotaText("n1", "grange: x"), "TRUE", "FALSE", 1)); len(got) > 0 {
		t.Errorf("one that is switched off closes %v", got)
	}
}

func TestReservations(t *testing.T) {
	d := real819(t).driver(DriverOptions{})
	want := batch.Reserved{Reservation: batch.Reservation{Name: "cloud-1", Host: "sge2", CPUs: 2,
		Memory: 256 * farm.MiB,
		Queue:  "vm.q", Limit: 2 * time.Hour}, Job: "15", Held: true, Since: at("08:32:34")}
	got, err := d.Reservations(t.Context())
	if diff := cmp.Diff([]batch.Reserved{want}, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	d.o.User = "eva" // root's are none of hers
	if got, err := d.Reservations(t.Context()); err != nil || len(got) > 0 {
		t.Errorf("%+v, %v", got, err)
	}
	cell := real819(t)
	cell["qsub "] = "FAIL Unable to run job: job rejected: the requested project \"x\" does not exist"
	if _, err := cell.driver(DriverOptions{}).Reserve(t.Context(),
		batch.Reservation{Name: "a", Host: "sgem", CPUs: 1, Account: "x"}); !farm.IsKind(err, farm.Invalid) {
		t.Error(err)
	}
	cell["qsub "] = "FAIL error: commlib error: got select error (Connection refused)"
	if _, err := cell.driver(DriverOptions{}).Reserve(t.Context(),
		batch.Reservation{Name: "a", Host: "sgem", CPUs: 1, Account: "x"}); !farm.IsKind(err, farm.Unavailable) {
		t.Error(err)
	}
}

func TestLookup(t *testing.T) {
	cell := real819(t)
	d := cell.driver(DriverOptions{})
	for limit, ends := range map[string]time.Time{"INFINITY": at("09:32:34"), "0:30:00": at("09:02:34"),
		"2:0:0": at("09:32:34")} {
		cell["qconf -sq vm.q@sgem"] = "qname vm.q\nh_rt " + limit + "\n"
		got, err := d.Lookup(t.Context(), farm.Allotment{System: farm.GridEngine, Job: "16", Slots: 2})
		if err != nil || got.Account != "physics" || got.Queue != "vm.q" || !got.Ends.Equal(ends) || got.Slots != 2 {
			t.Errorf("%s: %+v, %v", limit, got, err)
		}
	}
	for _, job := range []string{"17", "16.1", "18", "x", "-1"} {
		if _, err := d.Lookup(t.Context(), farm.Allotment{Job: job}); !farm.IsKind(err, farm.NotFound) {
			t.Errorf("%s: %v", job, err)
		}
	}
	cell["qstat -j "] = "<?xml version='1.0'?>\n<unknown_jobs >\n    <ST_name>16</ST_name>\n</unknown_jobs>\n"
	if _, err := d.Lookup(t.Context(), farm.Allotment{Job: "16"}); !farm.IsKind(err, farm.NotFound) {
		t.Error(err)
	}
}

func TestEnded(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "accounting")
	text := batchtest.Recorded(t, "accounting-8.1.9.txt")
	d := plays{}.driver(DriverOptions{Accounting: path})
	var cursor batch.Cursor
	var got []batch.Ended
	read := func(limit int) {
		t.Helper()
		for {
			jobs, next, err := d.Ended(t.Context(), cursor, limit)
			if err != nil {
				t.Fatal(err)
			}
			got, cursor = append(got, jobs...), next
			if len(jobs) < limit {
				return
			}
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	read(5) // there is none yet
	half := len(text) - 20
	write("accounting", text[:half])
	read(1)
	if n := len(got); n != 4 {
		t.Fatalf("of half a file %d: %+v", n, got)
	}
	write("accounting", text)
	read(100)
	type short struct {
		Job     string
		Outcome batch.Outcome
		Code    int
		Signal  int
	}
	var list []short
	for _, j := range got {
		list = append(list, short{j.Job, j.Outcome, j.Code, j.Signal})
	}
	if diff := cmp.Diff([]short{{"18.1", batch.OutcomeFailed, 0, 9}, {"22", batch.OutcomeFailed, 3, 0},
		{"23", batch.OutcomeFailed, 0, 11}, {"24", batch.OutcomeTimeout, 0, 9}, {"16", batch.OutcomeFailed, 0, 9}},
		list); diff != "" {
		t.Error(diff)
	}
	want := batch.Ended{Job: "16", Name: "sleep", User: "nobody", Account: "physics", Queue: "vm.q",
		Hosts: []string{"sgem"}, CPUs: 2, Submitted: at("08:32:34"), Started: at("08:32:34"), Finished: at("08:32:44"),
		CPUTime: new(8796 * time.Microsecond), MaxRSS: 3620864, Outcome: batch.OutcomeFailed, Signal: 9}
	if diff := cmp.Diff(want, got[len(got)-1]); diff != "" {
		t.Error(diff)
	}
	// Rotated twice while nobody read, and packed: nothing is left out, nothing comes twice.
	got = nil
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write([]byte(text + strings.ReplaceAll(lastLine(text), ":16:ac:", ":30:ac:")))
	z.Close()
	write("accounting.1.gz", packed.String())
	long := time.Now().Add(-time.Hour)
	os.Chtimes(filepath.Join(dir, "accounting.1.gz"), long, long)
	write("accounting.0", "# Version: 8.1.9\n"+strings.ReplaceAll(lastLine(text), ":16:ac:", ":31:ac:"))
	// of the one in use
	write("accounting-copy", "# Version: 8.1.9\n"+strings.ReplaceAll(lastLine(text), ":16:ac:", ":32:ac:"))
	write("accounting", "# Version: 8.1.9\n"+strings.ReplaceAll(lastLine(text), ":16:ac:", ":32:ac:"))
	read(1)
	var ids []string
	for _, j := range got {
		ids = append(ids, j.Job)
	}
	if !slices.Equal(ids, []string{"30", "31", "32"}) {
		t.Errorf("after rotation: %v", ids)
	}
	os.Remove(filepath.Join(dir, "accounting"))
	os.Remove(filepath.Join(dir, "accounting-copy"))
	if _, _, err := d.Ended(t.Context(), cursor, 1); !farm.IsKind(err, farm.Invalid) {
		t.Errorf("the file of the cursor is gone: %v", err)
	}
	for _, garbage := range []string{"a:b:c\n", strings.Replace(lastLine(text), "1795249964", "soon", 1)} {
		if _, _, err := parseRecord(garbage); err == nil {
			t.Errorf("%q is read", garbage)
		}
	}
	if _, ok, err := parseRecord(strings.Replace(lastLine(text), ":NONE:3620864", ":1.sgem:3620864", 1)); ok ||
		err != nil {
		t.Errorf("a part of a job is a job: %v", err)
	}
}

func lastLine(text string) string { return text[strings.LastIndex(strings.TrimSpace(text), "\n")+1:] }

// TestOutcome: one number stands for a limit of time and one of memory.
func TestOutcome(t *testing.T) {
	for category, want := range map[string]batch.Outcome{
		"-q vm.q -l h_rt=3600":              batch.OutcomeTimeout,
		"-q vm.q -l h_vmem=1G":              batch.OutcomeMemory,
		"-l h_rt=0:1:0,h_vmem=1G -pe smp 2": batch.OutcomeTimeout,
		"-l h_rt=3600,h_vmem=1G":            batch.OutcomeMemory,
		"":                                  batch.OutcomeTimeout, // the queue's own
	} {
		if got := outcome(failedLimit, 137, time.Minute, category); got != want {
			t.Errorf("%s: %s, not %s", category, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("<job_info><queue_info><job_list " +
		"state='running'><JB_job_number>1</JB_job_number><state>r</state></job_list></queue_info></job_info>")
	f.Add("vm.q:sgem:nogroup:nobody:sleep:16")
	f.Fuzz(func(t *testing.T, text string) {
		jobs, err := parseJobs(text)
		for _, j := range jobs {
			if err == nil && j.Number < 1 {
				t.Errorf("job %d", j.Number)
			}
		}
		parseRecord(text)
		parseNodes(text, parseQuotas(text))
		parseDetails(text)
	})
}

// TestAccounting: the cell's own file, unless another one is named.
func TestAccounting(t *testing.T) {
	for want, environ := range map[string][]string{
		"/opt/sge/default/common/accounting": {"SGE_ROOT=/opt/sge"},
		"/opt/sge/grid/common/accounting":    {"SGE_CELL=grid", "SGE_ROOT=/opt/sge"}, "": {"SGE_CELL=grid"},
	} {
		if got := NewDriver(FromEnvironment(environ), DriverOptions{}).o.Accounting; got != want {
			t.Errorf("%v: %q, not %q", environ, got, want)
		}
	}
	if got := NewDriver(FromEnvironment([]string{"SGE_ROOT=/opt/sge"}),
		DriverOptions{Accounting: "/var/acct"}).o.Accounting; got != "/var/acct" {
		t.Error(got)
	}
}
