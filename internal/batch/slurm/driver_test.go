package slurm

import (
	gocmp "cmp"
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// answers plays what Slurm's commands printed, by name; fields are separated by "|" here.
type answers map[string]string

func (a answers) driver(o DriverOptions) *Driver {
	return NewDriver(o, func(_ context.Context, c program.Call) ([]byte, error) {
		text, ok := a[c.Path]
		if said, failed := strings.CutPrefix(text, "FAIL "); failed || !ok {
			return nil, &program.Failed{Program: c.Path, Status: 1, Said: said}
		}
		return []byte(strings.ReplaceAll(text, "|", endOf(c))), nil
	})
}

// endOf returns what the command was told to print behind each field.
func endOf(c program.Call) string {
	if end := regexp.MustCompile("\x1f[A-Z2-7]{26}\x1f").FindString(strings.Join(c.Args, " ")); end != "" {
		return end
	}
	return separator
}

func TestNodes(t *testing.T) {
	text, err := os.ReadFile("testdata/nodes-22.05.txt")
	if err != nil {
		t.Fatal(err)
	}
	got, err := answers{"scontrol": string(text)}.driver(DriverOptions{}).Nodes(t.Context())
	want := []batch.Node{{Name: "grangeb", State: batch.NodeIdle, CPUs: 4, Free: 4, Memory: 6000 * farm.MiB,
		Features: []string{"sl9-big"}, Queues: []string{"two"}},
		{Name: "n17000", State: batch.NodeIdle, CPUs: 4, Free: 4, Memory: 6000 * farm.MiB,
			Queues: []string{"main", "two"}}}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v\n%s", err, d)
	}
	one := strings.Split(string(text), "\n")[0]
	for state, c := range map[string]batch.Node{
		"IDLE+DRAIN Reason=grange: no VM starts [root@2026-11-21T08:00:00]": {State: batch.NodeClosed, Closed: true,
			Ours: true, Reason: "no VM starts"},
		"MIXED+DRAIN Reason=disk [eva@2026-11-21T08:00:00] Comment=none": {State: batch.NodeClosed, Closed: true,
			Reason: "disk"},
		"DOWN*+DRAIN Reason=Not responding [slurm@2026-11-21T08:00:00]": {State: batch.NodeDown, Closed: true,
			Reason: "Not responding"},
		"IDLE+CLOUD+POWERED_DOWN": {State: batch.NodeOff},
		"IDLE~+CLOUD":             {State: batch.NodeOff},
		"MIXED+PLANNED":           {State: batch.NodeBusy, Free: 4},
		"IDLE+NOT_RESPONDING":     {State: batch.NodeDown},
		"IDLE+COMPLETING":         {State: batch.NodeBusy, Free: 4},
		"DOWN+CLOUD+POWERED_DOWN Reason=ResumeTimeout reached [slurm@2026-11-21T08:00:00]": {State: batch.NodeOff},
		"IDLE+DRAIN Reason=grange: a [b@c] in the text [root@2026-11-21T08:00:00]": {State: batch.NodeClosed,
			Closed: true, Ours: true, Reason: "a [b@c] in the text"},
	} {
		state, reason, _ := strings.Cut(state, " ")
		got, err := parseNodes(strings.Replace(one, "State=IDLE", "State="+state, 1) + " " + reason)
		if err != nil || len(got) != 1 || got[0].State != c.State || got[0].Closed != c.Closed ||
			got[0].Ours != c.Ours || got[0].Reason != c.Reason || got[0].Free != c.Free {
			t.Errorf("%s: %+v, %v", state, got, err)
		}
	}
	for _, garbage := range []string{"hello", "NodeName=a CPUTot=x"} {
		if _, err := parseNodes(garbage); err == nil {
			t.Errorf("%q is read", garbage)
		}
	}
}

func TestDemand(t *testing.T) {
	const pending = `17_[1-5,8%2]|Priority|2|1000M|cpu=2,mem=1000M,node=1,billing=2|atlas|main,long|2026-11-21T08:00:00|sl9-big&avx|job|(null)|
18|Resources|2|500M|cpu=2,mem=1000M,node=1,billing=2|atlas|main|2026-11-21T07:00:00|sl9-big|odd name||
19|JobHeldUser|2|1G|cpu=2,mem=1G,node=1|atlas|main|2026-11-21T07:00:00|(null)|held||
20|Dependency|2|1G|cpu=2,mem=1G,node=1|atlas|main|2026-11-21T07:00:00|(null)|later||
21|Resources|1|1G|cpu=1,mem=1G,node=1|(null)|main|2026-11-21T07:00:00|(null)|grange-hold-vm1||
22|QOSMaxJobsPerUserLimit|1|1G|cpu=1,mem=1G,node=1|(null)|main|2026-11-21T07:00:00|(null)|limited||
23_[0-100:10]|None|4|0|cpu=4,mem=8000M,node=2|(null)|long|N/A|(null)|a
24 Priority|no|
26|Priority|1|1G|cpu=1,mem=1G,node=1|(null)|long|N/A|(null)|b|night run grange:vm=el9:8c|
`
	got, err := answers{"squeue": pending}.driver(
		DriverOptions{Wishes: map[string]batch.Demand{"sl9-big": {Image: "sl9", Shape: "big"}}}).Demand(t.Context())
	want := []batch.Demand{{Jobs: 11, CPUs: 4, Queue: "long"},
		{Jobs: 7, Image: "sl9", Shape: "big", CPUs: 2, Memory: 1000 * farm.MiB, Account: "atlas", Queue: "main",
			Oldest: time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)},
		{Jobs: 1, Image: "el9", Shape: "8c", CPUs: 1, Memory: farm.GiB, Queue: "long"}}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v\n%s", err, d)
	}
	for _, garbage := range []string{"17|Priority",
		"17_[a-b]|Priority|2|1000M|mem=1000M|atlas|main|2026-11-21T08:00:00|x|job|c|\n",
		"17|P|2|much|cpu=2|a|m|t|x|j||\n", "17|P|2|1G|mem=much|a|m|t|x|j||\n"} {
		if _, err := (answers{"squeue": garbage}).driver(DriverOptions{}).Demand(t.Context()); !isKindOf(err,
			farm.Unavailable) {
			t.Errorf("%q: %v", garbage, err)
		}
	}
}

// TestDemandMemory: as Slurm 22.05.8 printed it, of jobs with --mem-per-cpu and with --mem, on one node and on more, an
// array, and some that ask for no memory.
func TestDemandMemory(t *testing.T) {
	text, err := os.ReadFile("testdata/squeue-22.05.txt")
	if err != nil {
		t.Fatal(err)
	}
	got, err := answers{"squeue": string(text)}.driver(DriverOptions{}).Demand(t.Context())
	oldest := time.Date(2026, 11, 21, 10, 45, 13, 0, time.UTC)
	wish := func(jobs, cpus int, memory farm.Bytes) batch.Demand {
		return batch.Demand{Jobs: jobs, CPUs: cpus, Memory: memory * farm.MiB, Queue: "p", Oldest: oldest}
	}
	want := []batch.Demand{wish(1, 1, 0), wish(1, 1, 4096), wish(5, 3, 2100), wish(1, 4, 1200), wish(2, 4, 2000)}
	slices.SortFunc(got, func(a, b batch.Demand) int { return gocmp.Or(a.CPUs-b.CPUs, int(a.Memory-b.Memory)) })
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v\n%s", err, d)
	}
}

// TestLookupSize: what Slurm tells counts where nothing else tells, and of a job on this host alone.
func TestLookupSize(t *testing.T) {
	for name, c := range map[string]struct {
		size  string
		known farm.Allotment
		want  farm.Allotment
	}{
		"nothing is known": {size: "7   1   cpu=2,mem=1000M,node=1,billing=2\n",
			want: farm.Allotment{Slots: 2, Memory: 1000 * farm.MiB}},
		"another element": {size: "8   1   cpu=4,mem=4G,node=1\n7   1   cpu=2,mem=1.50G,node=1,gres/gpu=1\n",
			want: farm.Allotment{Slots: 2, Memory: 1536 * farm.MiB}},
		"no memory": {size: "7   1   cpu=2,node=1\n", want: farm.Allotment{Slots: 2}},
		"two hosts": {size: "7   2   cpu=2,mem=1000M,node=2\n"},
		"CPUs are known": {size: "7   1   cpu=2,mem=1000M,node=1\n", known: farm.Allotment{CPUs: farm.NewCPUSet(3)},
			want: farm.Allotment{CPUs: farm.NewCPUSet(3), Memory: 1000 * farm.MiB}},
		"all is known": {size: "FAIL must not be asked", known: farm.Allotment{Slots: 1, Memory: 5},
			want: farm.Allotment{Slots: 1, Memory: 5}},
	} {
		d := NewDriver(DriverOptions{}, func(ctx context.Context, call program.Call) ([]byte, error) {
			if strings.HasPrefix(call.Args[len(call.Args)-1], "--format=") {
				return []byte(strings.Join([]string{"7", "atlas", "long", "N/A"}, separator) + "\n"), nil
			}
			return answers{"squeue": c.size}.driver(DriverOptions{}).run(ctx, call)
		})
		c.known.Job, c.want.Job, c.want.Account, c.want.Queue = "7", "7", "atlas", "long"
		if got, err := d.Lookup(t.Context(), c.known); err != nil || cmp.Diff(c.want, got) != "" {
			t.Errorf("%s: %v\n%s", name, err, cmp.Diff(c.want, got))
		}
	}
}

func isKindOf(err error, k farm.Kind) bool {
	e := new(farm.Error)
	return errors.As(err, &e) && e.Kind == k
}

// TestComment: as Slurm 22.05 prints it. slurmdbd that is away is told later; a job that it does not have is not.
func TestComment(t *testing.T) {
	for _, c := range []struct {
		printed string
		kind    farm.Kind
	}{{" Modified jobs...\n  17 submitted at 2026-11-28T20:04:03\n", ""},
		{" Nothing modified\n", farm.NotFound},
		{"FAIL sacctmgr: accounting_storage/slurmdbd: acct_storage_p_modify_job: Request didn't affect anything or your " +
			"user doesn't have privilege to perform this action", farm.NotFound},
		{"FAIL sacctmgr: error: slurmdbd: Connection refused", farm.Unavailable}} {
		err := answers{"sacctmgr": c.printed}.driver(DriverOptions{}).Comment(t.Context(), "17", "vms=1")
		if c.kind == "" && err != nil || c.kind != "" && !isKindOf(err, c.kind) {
			t.Errorf("%q: %v", c.printed, err)
		}
	}
}

// TestEndedLate: slurmdbd hears of ends in no order. None is left out, none comes twice.
func TestEndedLate(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	line := func(id string, end time.Time) string {
		at := end.Format("2006-01-02T15:04:05")
		return strings.Join([]string{id, id, "eva", "atlas", "main", "2", at, at, at, "COMPLETED", "0:0", "01:02.500",
			"", "n[08-10],m1", "job|with|bars\n17\x1f", "", "", "", ""}, "|END") + "\n" +
			strings.Join([]string{id + ".batch", id + ".batch", "", "atlas", "", "2", at, at, at, "COMPLETED", "0:0",
				"01:02.500", "2048K", "n08", "batch", "", "", "", ""}, "|END") + "\n"
	}
	var text string
	d := NewDriver(DriverOptions{}, func(_ context.Context, c program.Call) ([]byte,
		error) {
		return []byte(strings.ReplaceAll(text, "|END", endOf(c))), nil
	})
	var cursor batch.Cursor
	var got []string
	read := func(limit int) {
		for {
			jobs, next, err := d.Ended(t.Context(), cursor, limit)
			if err != nil {
				t.Fatal(err)
			}
			cursor = next
			for _, j := range jobs {
				got = append(got, j.Job)
				if j.MaxRSS != 2048*farm.MiB/1024 || j.CPUTime == nil || *j.CPUTime != 62500*time.Millisecond ||
					!slices.Equal(j.Hosts, []string{"n08", "n09", "n10", "m1"}) || j.Name != "job|with|bars\n17\x1f" {
					t.Errorf("%+v", j)
				}
			}
			if len(jobs) < limit {
				return
			}
		}
	}
	text = line("5", now.Add(-time.Hour)) + line("7", now.Add(-2*time.Minute)) + line("6", now.Add(-2*time.Minute))
	read(2)
	text += line("3", now.Add(-5*time.Minute)) + line("8", now) + line("7", now) // 3 is late; 7 ran again
	read(1)
	read(100)
	if want := []string{"5", "6", "7", "3", "7", "8"}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}

// TestEndedBacklog: of months that sacct cannot print at once, with weeks in which nothing ended, every job comes once.
func TestEndedBacklog(t *testing.T) {
	const layout, most, jobs, limit = "2006-01-02T15:04:05", 2000, 6000, 100
	now := time.Now().UTC().Truncate(time.Second)
	ends := make([]time.Time, jobs) // half of them long ago, and the rest lately, some at one moment
	for i := range ends {
		ends[i] = now.Add(-time.Duration(i/2*2) * time.Minute)
		if i >= jobs/2 {
			ends[i] = ends[i].Add(-60 * 24 * time.Hour)
		}
	}
	calls, refused := 0, 0
	d := NewDriver(DriverOptions{}, func(_ context.Context, c program.Call) ([]byte, error) {
		calls++
		var from, until string
		for _, a := range c.Args {
			if v, ok := strings.CutPrefix(a, "--starttime="); ok {
				from = v
			}
			if v, ok := strings.CutPrefix(a, "--endtime="); ok {
				until = strings.Replace(v, "now", "9999", 1)
			}
		}
		var out strings.Builder
		n := 0
		for i, end := range ends {
			if at := end.Format(layout); at >= from && at <= until {
				n++
				fields := []string{strconv.Itoa(i), strconv.Itoa(i), "eva", "atlas", "main", "2", at, at, at, "COMPLETED",
					"0:0", "01:02", "", "n1", "job", "", "", "", "\n"}
				out.WriteString(strings.Join(fields, endOf(c)))
			}
		}
		if n > most {
			refused++
			return nil, program.ErrTooMuch
		}
		return []byte(out.String()), nil
	})
	seen := map[string]int{}
	cursor := d.Behind(now.Add(-90 * 24 * time.Hour))
	for still := 0; still < 8; { // passes: one that fails has the next ask for less
		got, next, err := d.Ended(t.Context(), cursor, limit)
		if still++; err != nil {
			continue
		}
		for _, j := range got {
			seen[j.Job]++
			still = 0
		}
		if next != cursor {
			cursor, still = next, 0
		}
	}
	for job, n := range seen {
		if n != 1 {
			t.Errorf("job %s came %d times", job, n)
		}
	}
	if len(seen) != jobs || refused == 0 || calls > 2*jobs/limit {
		t.Errorf("%d of %d jobs in %d calls, %d of them refused", len(seen), jobs, calls, refused)
	}
}

func TestAway(t *testing.T) {
	d := answers{"squeue": "FAIL slurm_load_jobs error: Unable to contact slurm controller (connect failure)"}.driver(
		DriverOptions{})
	if _, err := d.Demand(t.Context()); !isKindOf(err, farm.Unavailable) {
		t.Error(err)
	}
	d = answers{"squeue": "", "sbatch": "FAIL sbatch: error: Batch job submission failed: Invalid account or " +
		"account/partition combination specified"}.driver(DriverOptions{})
	one := batch.Reservation{Name: "a", Host: "n1", CPUs: 1}
	if _, err := d.Reserve(t.Context(), one); !isKindOf(err, farm.Invalid) {
		t.Error(err)
	}
}

func TestSpan(t *testing.T) {
	for text, want := range map[string]time.Duration{"1:00:00": time.Hour, "2-01:00:00": 49 * time.Hour,
		"05:03": 303 * time.Second, "UNLIMITED": 0, "00:01.250": 1250 * time.Millisecond, "": 0} {
		if got := span(text); got != want {
			t.Errorf("%q: %v, not %v", text, got, want)
		}
	}
}

// TestEndedFromTheBeginning: for sacct second 0 is not a time, and it would list what ends now.
func TestEndedFromTheBeginning(t *testing.T) {
	for _, after := range []batch.Cursor{"", `{"t":0,"had":null}`, `{"t":700,"had":null}`} {
		var from string
		d := NewDriver(DriverOptions{}, func(_ context.Context, c program.Call) ([]byte, error) {
			for _, a := range c.Args {
				if v, ok := strings.CutPrefix(a, "--starttime="); ok && from == "" {
					from = v
				}
			}
			return nil, nil
		})
		if _, _, err := d.Ended(t.Context(), after, 1); err != nil || from < "1970-01-02" || from > "1971" {
			t.Errorf("%s: read from %q, %v", after, from, err)
		}
	}
}

// TestFate: slurmctld is asked first, and slurmdbd what it has forgotten. A job of another name is none of ours.
func TestFate(t *testing.T) {
	line := func(fields ...string) string { return strings.Join(fields, separator) + "\n" }
	const end = "2026-11-21T08:00:00"
	gone := "FAIL slurm_load_jobs error: Invalid job id specified"
	for name, c := range map[string]struct {
		squeue, sacct string
		want          batch.Outcome
		kind          farm.Kind // of the error
	}{
		"cancelled": {squeue: line("7", "CANCELLED", end, "grange-hold-web"), want: batch.OutcomeCancelled},
		"is ending": {squeue: line("7", "COMPLETING", end, "grange-hold-web")},
		"node died": {squeue: line("7", "NODE_FAIL", end, "grange-hold-web"), want: batch.OutcomeNode},
		"forgotten": {squeue: gone, sacct: line("7", "CANCELLED by 0", end, "grange-hold-web"),
			want: batch.OutcomeCancelled},
		"of another time": {squeue: line("7", "CANCELLED", end, "grange-hold-db"),
			sacct: line("7", "CANCELLED by 0", end, "simulation"), kind: farm.NotFound},
		"no accounting": {squeue: gone, sacct: "FAIL Slurm accounting storage is disabled", kind: farm.NotFound},
		"slurmctld is away": {squeue: "FAIL slurm_load_jobs error: Unable to contact slurm controller (connect " +
			"failure)", kind: farm.Unavailable},
	} {
		got, err := answers{"squeue": c.squeue, "sacct": c.sacct}.driver(DriverOptions{}).Fate(t.Context(), "web", "7")
		if c.kind != "" {
			if !isKindOf(err, c.kind) {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		} else if err != nil || got.Outcome != c.want || got.Finished.Format("15:04") != "08:00" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := (answers{}).driver(DriverOptions{}).Fate(t.Context(), "web", "7; rm"); !isKindOf(err, farm.NotFound) {
		t.Error(err)
	}
}

func TestWaitsFor(t *testing.T) {
	for reason, want := range map[string]string{
		"Resources": "other jobs have the CPUs or the memory (Resources)",
		"None":      "Slurm has not looked at it yet (None)",
		"ReqNodeNotAvail, UnavailableNodes:n1": "the host is down, drained or reserved (ReqNodeNotAvail, " +
			"UnavailableNodes:n1)",
		"PartitionTimeLimit": "jobs of the partition have a time limit, and this one has none " +
			"(PartitionTimeLimit)",
		"AssocGrpCpuLimit": "a limit of the account (AssocGrpCpuLimit)",
		"SomethingNew":     "SomethingNew",
	} {
		if got := waitsFor(reason); got != want {
			t.Errorf("%s: %q", reason, got)
		}
	}
}

// TestWished: what `grange:vm=` in a comment names.
func TestWished(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0", 64)
	for comment, want := range map[string][2]string{"(null)": {}, "": {}, "grange:vm=": {}, "vm=el9": {},
		"xgrange:vm=el9": {}, "grange:vm=el9": {"el9"}, "a b\tgrange:vm=el9:8c\nd": {"el9", "8c"},
		"grange:vm=" + digest + ":8c": {digest, "8c"}, "grange:vm=" + digest: {digest},
		"grange:vm=oci://r:5000/n:1,8c": {"oci://r:5000/n:1", "8c"}} {
		if image, shape := wished(comment); image != want[0] || shape != want[1] {
			t.Errorf("%q: %q, %q", comment, image, shape)
		}
	}
}

// TestCPUTimeOfRuns: of a run's fields and steps the largest counts; a run that nobody measured has none.
func TestCPUTimeOfRuns(t *testing.T) {
	line := func(id, total, user, system, usage string) []string {
		return []string{id, id, "eva", "atlas", "main", "2", "2026-11-01T10:00:00", "2026-11-01T10:00:00",
			"2026-11-01T11:00:00", "COMPLETED", "0:0", total, "", "n1", "job", user, system, usage}
	}
	for name, c := range map[string]struct {
		lines [][]string
		want  time.Duration // 0: not known
	}{
		"by the job": {[][]string{line("7", "10:00", "", "", "")}, 10 * time.Minute},
		"nothing":    {[][]string{line("7", "", "", "", "")}, 0},
		"invalid":    {[][]string{line("7", "INVALID", "INVALID", "", "cpu=")}, 0},
		"zero everywhere": {[][]string{line("7", "00:00:00", "00:00:00", "00:00:00", ""),
			line("7.batch", "00:00:00", "", "", "")}, 0},
		"user and system": {[][]string{line("7", "00:00:00", "01:00", "00:01.500", "")}, 61500 * time.Millisecond},
		"zero, but a step": {[][]string{line("7", "00:00:00", "", "", ""),
			line("7.batch", "01:00.500", "", "", "")}, 60500 * time.Millisecond},
		"sampled": {[][]string{line("7", "00:00:00", "", "", ""),
			line("7.0", "00:00:00", "", "", "energy=0,cpu=1-00:00:01,mem=1K")}, 24*time.Hour + time.Second},
		"several steps": {[][]string{line("7", "00:30", "", "", ""), line("7.0", "00:20", "", "", ""),
			line("7.1", "", "", "", "cpu=00:00:25")}, 45 * time.Second},
		"another job after": {[][]string{line("7", "", "", "", ""), line("8", "", "", "", ""), line("8.0", "00:20", "", "", "")}, 0},
	} {
		jobs, err := parseEnded(c.lines)
		if err != nil || jobs[0].Job != "7" {
			t.Fatalf("%s: %+v, %v", name, jobs, err)
		}
		if got := jobs[0].CPUTime; (got == nil) != (c.want == 0) || got != nil && *got != c.want {
			t.Errorf("%s: %v, not %v", name, got, c.want)
		}
	}
}
