package usage

import (
	"bytes"
	"log/slog"
	"math"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/procstat"
)

var always = time.Unix(1<<40, 0)

func open(t *testing.T, dir, boot string) *Desk {
	t.Helper()
	d, err := Open(Options{Dir: dir, Log: slog.New(slog.DiscardHandler), Hardware: func() string { return "amd-1s" },
		Boot: func() string { return boot }, Traffic: func(int) (in, out uint64, ok bool) { return 0, 0, false },
		Keep: func() time.Duration { return 100 * time.Hour }})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// ended are the records that have ended, by ID.
func ended(t *testing.T, d *Desk) map[string]api.Usage {
	t.Helper()
	all := map[string]api.Usage{}
	if err := d.Each(time.Time{}, always, func(u api.Usage) error {
		if _, twice := all[u.ID]; twice {
			t.Errorf("record %s twice", u.ID)
		}
		all[u.ID] = u
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func only(t *testing.T, d *Desk, job string) api.Usage {
	t.Helper()
	var found []api.Usage
	for _, u := range ended(t, d) {
		if u.Job == job {
			found = append(found, u)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d records of job %s: %+v", len(found), job, found)
	}
	return found[0]
}

// copyOf is a directory as a crash leaves it.
func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestCrashes: whenever the agent dies, each VM has one record.
func TestCrashes(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir, "b1")
	d.Begin("j1", api.Usage{Kind: api.UsageJob, Job: "j1", Cores: 2}, 0, 0)
	begun := copyOf(t, dir)
	d.Exited("j1", "j1", api.Exit{Code: 3, User: time.Second, MaxRSS: 7})
	d.Exited("j1", "j1", api.Exit{Code: 3, User: time.Second, MaxRSS: 7}) // as a guest tells the next agent
	d.Exited("j1", "j2", api.Exit{User: -time.Hour, System: time.Second}) // which no kernel says
	told := copyOf(t, dir)
	d.End("j1", api.EndedLeft)
	d.End("j1", api.EndedLeft) // who ends it is not always known
	if u := only(t, d, "j1"); u.Ended != "exit:3" || *u.JobCPU != 1 || u.JobMemory != 7<<10 || u.Cores != 2 ||
		u.Hardware != "amd-1s" || u.End.Before(u.Start) {
		t.Errorf("%+v", u)
	}

	// It runs on, and the next agent ends it.
	next := open(t, copyOf(t, begun), "b1")
	next.GoOn("j1", api.Usage{Kind: api.UsageJob, Job: "j1"}, time.Now(), 0, 0)
	next.Settle()
	next.End("j1", api.EndedLeft)
	if u := only(t, next, "j1"); u.Ended != api.EndedLeft || u.Cores != 2 {
		t.Errorf("%+v", u)
	}

	// It ended while nobody was there; with its host; after its job had said how.
	for how, c := range map[string]struct{ dir, boot string }{
		api.EndedUnseen: {begun, "b1"}, api.EndedHostBooted: {begun, "b2"}, "exit:3": {told, "b2"}} {
		next := open(t, copyOf(t, c.dir), c.boot)
		next.Settle()
		if u := only(t, next, "j1"); u.Ended != how || u.Wall < 0 {
			t.Errorf("%s: %+v", how, u)
		}
	}

	// Its line is there, and its file too: the power went between the two.
	both := copyOf(t, dir)
	for _, path := range mustGlob(t, begun, "*"+openSuffix) {
		text, _ := os.ReadFile(path)
		if err := os.WriteFile(filepath.Join(both, filepath.Base(path)), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	next = open(t, both, "b1")
	next.Settle()
	only(t, next, "j1")
	if left := mustGlob(t, both, "*"+openSuffix); len(left) > 0 {
		t.Errorf("%v stay", left)
	}

	// The line is cut short, and the file is there.
	torn := copyOf(t, both)
	text, _ := os.ReadFile(filepath.Join(torn, "00000001.jsonl"))
	if err := os.WriteFile(filepath.Join(torn, "00000001.jsonl"), text[:len(text)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range mustGlob(t, told, "*"+openSuffix) {
		text, _ := os.ReadFile(path)
		os.WriteFile(filepath.Join(torn, filepath.Base(path)), text, 0o600)
	}
	next = open(t, torn, "b1")
	next.Settle()
	only(t, next, "j1")
}

func mustGlob(t *testing.T, dir, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// TestNeverRan: a VM that an agent has made and never let run leaves no record, and its job's next VM has one.
func TestNeverRan(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir, "b1")
	d.Begin("j1", api.Usage{Kind: api.UsageJob, Job: "j1"}, 0, 0)
	next := open(t, copyOf(t, dir), "b1")
	next.Forget("j1")
	next.Settle()
	next.Begin("j1", api.Usage{Kind: api.UsageJob, Job: "j1"}, 0, 0)
	next.Begin("j1", api.Usage{Kind: api.UsageJob, Job: "j1"}, 0, 0) // another attempt
	next.End("j1", api.EndedLeft)
	only(t, next, "j1")
}

// TestIntervals: an interval that is cut and the next one are whole whatever the crash, and the CPU time of a process
// is in one of them.
func TestIntervals(t *testing.T) {
	burner := burn(t)
	dir := t.TempDir()
	d := open(t, dir, "b1")
	d.Begin("v1", api.Usage{Kind: api.UsageVM, VM: "v1", Job: "x", Part: 1}, burner.Process.Pid, started(t, burner))
	awaitCPU(t, burner, 50*time.Millisecond)
	v := d.of("v1")
	d.look(v)
	d.keep(v)
	before := copyOf(t, dir)
	d.cut(v)
	after := copyOf(t, dir)
	between := copyOf(t, after) // the next interval is there, and the line is not
	old := mustGlob(t, before, "*"+openSuffix)[0]
	for name, c := range map[string]struct {
		dir   string
		parts int
	}{"before": {before, 1}, "after": {after, 2}, "between": {between, 2}} {
		if name == "between" {
			e := v.entry
			e.Usage.ID = filepath.Base(old[:len(old)-len(openSuffix)])
			lines, _ := os.ReadFile(filepath.Join(c.dir, "00000001.jsonl"))
			os.WriteFile(filepath.Join(c.dir, "00000001.jsonl"), nil, 0o600)
			text := append([]byte(`{"Key":"v1","PID":`+itoa(e.PID)+`,"Started":`+itoa(int(e.Started))+
				`,"Boot":"b1","Usage":`), append(lines[:len(lines)-1], '}')...)
			os.WriteFile(filepath.Join(c.dir, e.Usage.ID+openSuffix), text, 0o600)
		}
		next := open(t, c.dir, "b1")
		next.GoOn("v1", api.Usage{Kind: api.UsageVM}, time.Now(), burner.Process.Pid, started(t, burner))
		next.Settle()
		next.End("v1", api.EndedStopped)
		all, cpu := ended(t, next), 0.0
		for _, u := range all {
			cpu += *u.CPU
		}
		clock, err := processClock(burner.Process.Pid)
		if len(all) != c.parts || err != nil || cpu > clock.Seconds()+1e-6 || cpu < 0.05 {
			t.Errorf("%s: %d records of %g s, the process has %v, %v: %+v", name, len(all), cpu, clock, err, all)
		}
	}
}

func itoa(n int) string { return string(appendInt(nil, n)) }

func appendInt(b []byte, n int) []byte {
	if n >= 10 {
		b = appendInt(b, n/10)
	}
	return append(b, byte('0'+n%10))
}

// TestDelivery: what a server has taken it is not given again, by the next agent neither; what it has not, always.
func TestDelivery(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir, "b1")
	for _, job := range []string{"a", "b", "c"} {
		d.Begin(job, api.Usage{Job: job}, 0, 0)
		d.End(job, api.EndedLeft)
	}
	jobs := func(d *Desk, limit int) (all string, taken func(string) error) {
		t.Helper()
		records, taken, err := d.Pending(limit)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range records {
			all += u.Job
		}
		return all, taken
	}
	if all, _ := jobs(d, 2); all != "ab" {
		t.Error(all)
	}
	all, taken := jobs(d, 2)
	if err := taken(""); all != "ab" || err != nil {
		t.Error(all, err)
	}
	next := open(t, copyOf(t, dir), "b1")
	if all, _ := jobs(next, 10); all != "c" {
		t.Error(all)
	}
	changed := next.Changed()
	next.Begin("d", api.Usage{Job: "d"}, 0, 0)
	next.End("d", api.EndedLeft)
	<-changed
	if all, _ := jobs(next, 10); all != "cd" {
		t.Error(all)
	}
	changed = next.Changed()
	if all, taken := jobs(next, 1); all != "c" || taken("restored") != nil {
		t.Error(all)
	}
	<-changed
	if all, _ := jobs(open(t, copyOf(t, dir), "b1"), 10); all != "c" {
		t.Errorf("of another host's: %s", all)
	}
	all, taken = jobs(next, 2)
	if err := taken("restored"); all != "ab" || err != nil {
		t.Errorf("a restored server is given %s, %v", all, err)
	}
	next.records.expire(always, false)
	if all, _ := jobs(next, 10); all != "cd" {
		t.Errorf("the server is to have what was old: %s", all)
	}
	left := copyOf(t, dir) // with another segment behind
	if err := os.WriteFile(filepath.Join(left, "00000002.jsonl"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	next = open(t, left, "b1")
	for _, c := range []struct {
		before time.Time
		want   string
	}{{time.Now().Add(time.Hour), "c"}, {always, ""}} {
		next.records.expire(c.before, true)
		if all, _ := jobs(next, 10); all != c.want {
			t.Errorf("after all before %v has expired: %q", c.before, all)
		}
	}
}

func burn(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd
}

func started(t *testing.T, cmd *exec.Cmd) uint64 {
	t.Helper()
	at, err := procstat.Started(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func awaitCPU(t *testing.T, cmd *exec.Cmd, least time.Duration) {
	t.Helper()
	for {
		if used, err := processClock(cmd.Process.Pid); err != nil || used >= least {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// burnFlag has this program burn CPU time in threads that it starts when it reads a line.
const burnFlag = "burn-in-threads"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == burnFlag {
		os.Stdin.Read(make([]byte, 1))
		for range 3 {
			go func() {
				for n := 0; n >= 0; n++ { // for ever, as good as
				}
			}()
		}
		select {}
	}
	os.Exit(m.Run())
}

// TestMeterBehindDeath: what a process uses behind the last look is counted, in threads that it has started since, too,
// although it was killed and is gone. A kernel that gives no counters leaves what was there at the last look.
func TestMeterBehindDeath(t *testing.T) {
	fd, none := taskClock(os.Getpid())
	if none == nil {
		syscall.Close(fd)
	}
	cmd := exec.Command(os.Args[0], burnFlag)
	begin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	m := newMeter(cmd.Process.Pid, started(t, cmd))
	defer m.close()
	m.look()
	seen := m.clock
	if _, err := begin.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	awaitCPU(t, cmd, seen+300*time.Millisecond)
	cmd.Process.Kill()
	cmd.Wait()
	kernel := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	switch used := m.used(); {
	case none != nil && used != seen:
		t.Errorf("%v counted, the last look saw %v", used, seen)
	// perf's clock goes on in interrupts and in time that a hypervisor steals, the scheduler's does not
	case none == nil && math.Abs((used-kernel).Seconds()) > 0.2*kernel.Seconds():
		t.Errorf("%v counted, the kernel gave the parent %v", used, kernel)
	}
}

// TestServe: users read what is theirs, one at a time.
func TestServe(t *testing.T) {
	d := open(t, t.TempDir(), "b1")
	for i, uid := range []uint32{7, 8, 7} {
		key := itoa(i + 1)
		d.Begin(key, api.Usage{Kind: api.UsageJob, Job: key, UID: uid}, 0, 0)
		d.End(key, api.EndedLeft)
	}
	get := func(query string, uid uint32, all bool) (int, error) {
		w := httptest.NewRecorder()
		err := d.Serve(deadlines{w}, httptest.NewRequest("GET", "/v1/usage?"+query, nil), uid, all)
		return bytes.Count(w.Body.Bytes(), []byte("\n")), err
	}
	for _, c := range []struct {
		query string
		uid   uint32
		all   bool
		want  int
	}{{"", 7, false, 2}, {"", 8, false, 1}, {"", 9, false, 0}, {"", 0, true, 3},
		{"from=2100-01-01T00:00:00Z", 0, true, 0}} {
		if n, err := get(c.query, c.uid, c.all); n != c.want || err != nil {
			t.Errorf("%+v: %d, %v", c, n, err)
		}
	}
	if !d.enter(7) {
		t.Fatal("somebody reads")
	}
	if _, err := get("", 7, false); err == nil {
		t.Error("one user reads twice at a time")
	}
	if _, err := get("", 8, false); err != nil {
		t.Error(err)
	}
	d.leave(7)
	if _, err := get("", 7, false); err != nil {
		t.Error(err)
	}
}

// deadlines takes them, as a connection does.
type deadlines struct{ *httptest.ResponseRecorder }

func (deadlines) SetWriteDeadline(time.Time) error { return nil }
