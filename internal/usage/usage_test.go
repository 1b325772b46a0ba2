package usage

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

func TestMonths(t *testing.T) {
	now := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct{ from, to, first, last string }{
		{"", "", "2026-11", "2026-11"}, {"2026-09", "", "2026-09", "2026-11"}, {"", "2026-09", "2026-09", "2026-09"},
		{"2026-09", "2026-10", "2026-09", "2026-10"}, {"2027-01", "", "2027-01", "2027-01"},
		{"2026-10", "2026-09", "", ""}, {"October", "", "", ""}, {"2026-13", "", "", ""}} {
		first, last, err := Months(c.from, c.to, now)
		if first != c.first || last != c.last || (err != nil) != (c.first == "") {
			t.Errorf("%+v: %s to %s, %v", c, first, last, err)
		}
	}
	for _, c := range []struct {
		month, closed, in string
		late              bool
	}{{"2026-10", "", "2026-10", false}, {"2026-10", "2026-09", "2026-10", false}, {"2026-10", "2026-10", "2026-11", true},
		{"2026-03", "2026-12", "2027-01", true}} {
		if in, late := Counts(c.month, c.closed); in != c.in || late != c.late {
			t.Errorf("%+v: %s, %v", c, in, late)
		}
	}
	if m := MonthOf(time.Date(2026, 10, 31, 23, 30, 0, 0, time.FixedZone("", -3600))); m != "2026-11" {
		t.Errorf("months are UTC's: %s", m)
	}
}

// The interval of a VM's last day of a month is cut when that is over; it is of that month, for APEL, too.
func TestMonth(t *testing.T) {
	midnight := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	u := api.Usage{Kind: api.UsageVM, Start: midnight.Add(-20 * time.Hour), End: midnight.Add(4 * time.Second),
		Ended: api.EndedCut}
	if m := Month(u); m != "2026-10" {
		t.Errorf("cut behind midnight: %s", m)
	}
	if _, end := times(u); end != fmt.Sprint(midnight.Unix()-1) {
		t.Errorf("for APEL it ends at %s", end)
	}
	u.Ended = "exit:0"
	if m := Month(u); m != "2026-11" {
		t.Errorf("ended behind midnight: %s", m)
	}
}

func TestScoreOf(t *testing.T) {
	scores := []farm.Score{{Name: "any", Hardware: "a", Core: 10}, {Name: "eight", Hardware: "a", CPUs: 8, Core: 12},
		{Name: "four", Hardware: "b", CPUs: 4, Core: 7}, {Name: "tuned", Hardware: "a", CPUs: 8, Tuning: "t", Core: 13},
		{Name: "any tuned", Hardware: "a", Tuning: "t", Core: 11}, {Name: "now", Hardware: "d", CPUs: 4, Tuning: "t", Core: 1}}
	for _, c := range []struct {
		hardware string
		cores    int
		tuning   string
		want     string
	}{{"a", 8, "", "eight"}, {"a", 8, "u", "eight"}, {"a", 8, "t", "tuned"}, {"a", 4, "", "any"},
		{"a", 4, "t", "any tuned"}, {"b", 4, "t", "four"}, {"b", 8, "", ""}, {"c", 4, "", ""}, {"d", 4, "", ""},
		{"d", 4, "u", ""}, {"d", 4, "t", "now"}} {
		if s, ok := ScoreOf(scores, c.hardware, c.cores, c.tuning); s.Name != c.want || ok != (c.want != "") {
			t.Errorf("%+v: %q", c, s.Name)
		}
	}
}

func record() api.Usage {
	cpu, in := 3.25, uint64(5<<30)
	return api.Usage{ID: "0f0e0d0c-0000-4000-8000-000000000001", Kind: api.UsageJob, Batch: "slurm/17", User: "ann",
		FQAN: "/atlas/Role=production", Host: "node-1", Start: time.Unix(1000, 0), End: time.Unix(1010, 0), Wall: 9.6,
		CPU: new(4.4), JobCPU: &cpu, Cores: 2, Memory: 4 << 30, Month: "1970-01", NetworkIn: &in, Ended: "exit:0"}
}

// keysOf reads one record of a message as APEL's parser does.
func keysOf(t *testing.T, message, head string) map[string]string {
	t.Helper()
	text, ok := strings.CutPrefix(message, head+"\n")
	body, rest, whole := strings.Cut(text, "%%\n")
	if !ok || !whole || rest != "" {
		t.Fatalf("%q", message)
	}
	all := map[string]string{}
	for line := range strings.Lines(body) {
		key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if _, twice := all[key]; !ok || twice || value == "" {
			t.Errorf("line %q", line)
		}
		all[key] = value
	}
	return all
}

func TestGridMessage(t *testing.T) {
	u := record()
	site := Site{Name: "EXAMPLE", Submit: "ce/slurm"}
	got := keysOf(t, site.GridMessage([]api.Usage{u}), "APEL-individual-job-message: v0.3")
	for key, want := range map[string]string{"Site": "EXAMPLE", "LocalJobId": "17.0f0e0d0c", "WallDuration": "10",
		"CpuDuration": "4", "StartTime": "1000", "EndTime": "1010", "FQAN": "/atlas/Role=production", "Processors": "2",
		"InfrastructureType": "grid", "LocalUserId": "ann", "ServiceLevel": "", "ServiceLevelType": ""} {
		if got[key] != want {
			t.Errorf("%s: %q, not %q", key, got[key], want)
		}
	}
	if u.Score, u.ScoreUnit = 12.5, "own"; ScoredForAPEL(u) {
		t.Error("APEL knows no unit of ours")
	}
	if u.ScoreUnit = "HS06"; !ScoredForAPEL(u) {
		t.Error("APEL knows HS06")
	}
	u.FQAN, u.End = "", time.Unix(5, 0) // the clock was set back
	u.User = "ann\n%%\nSite: OTHER"
	got = keysOf(t, site.GridMessage([]api.Usage{u}), "APEL-individual-job-message: v0.3")
	if got["ServiceLevel"] != "12.5" || got["ServiceLevelType"] != "hepspec" || got["EndTime"] != "1000" ||
		got["InfrastructureType"] != "local" || got["Site"] != "EXAMPLE" {
		t.Errorf("%v", got)
	}
}

func TestCloudMessage(t *testing.T) {
	u := record()
	u.Kind, u.FQAN, u.Ended, u.Name = api.UsageVM, "", api.EndedCut, "web"
	got := keysOf(t, Site{Name: "EXAMPLE"}.CloudMessage([]api.Usage{u}), "APEL-cloud-message: v0.4")
	for key, want := range map[string]string{"VMUUID": u.ID, "SiteName": "EXAMPLE", "Status": "started", "CpuCount": "2",
		"Memory": "4096", "NetworkInbound": "5", "NetworkOutbound": "", "FQAN": "None", "MachineName": "web"} {
		if got[key] != want {
			t.Errorf("%s: %q, not %q", key, got[key], want)
		}
	}
}

// TestAuditor: a record as AUDITOR's own library prints it, and names that it refuses.
func TestAuditor(t *testing.T) {
	u := record()
	u.Account, u.Score, u.ScoreUnit, u.Ended = "phys <a>", 12.5, "HEPscore23", ""
	var out bytes.Buffer
	if err := NewAuditor(&out, "EXAMPLE").Write(u); err != nil {
		t.Fatal(err)
	}
	want := `{"record_id":"0f0e0d0c-0000-4000-8000-000000000001","meta":{"batch":["slurm%2F17"],` +
		`"fqan":["%2Fatlas%2FRole=production"],"group_id":["phys %3Ca%3E"],"host":["node-1"],"kind":["job"],` +
		`"site_id":["EXAMPLE"],"user_id":["ann"]},"components":[{"name":"Cores","amount":2,"scores":[{"name":"HEPscore23",` +
		`"value":12.5}]},{"name":"CPUSeconds","amount":4,"scores":[]},{"name":"WallSeconds","amount":10,"scores":[]},` +
		`{"name":"MemoryMiB","amount":4096,"scores":[]},` +
		`{"name":"ScratchMiB","amount":0,"scores":[]}],"start_time":"1970-01-01T00:16:40Z",` +
		`"stop_time":"1970-01-01T00:16:50Z"}` + "\n"
	if out.String() != want {
		t.Errorf("%s, not\n%s", out.String(), want)
	}
	if got := auditorName(" " + strings.Repeat("é/", 100)); len(got) > 256 || strings.Contains(got, "/") ||
		!strings.HasPrefix(got, "é%2Fé") {
		t.Error(got)
	}
}

func TestMasked(t *testing.T) {
	u := Masked(record())
	if u.User != Withheld || u.UID != 0 || u.Batch != "" || *u.CPU != 4.4 {
		t.Errorf("%+v", u)
	}
}

func TestCSV(t *testing.T) {
	var out bytes.Buffer
	table, err := NewCSV(&out)
	u := record()
	u.Account = "=cmd()"
	if err != nil || table.Write(u) != nil || table.Flush() != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(&out).ReadAll()
	if err != nil || len(lines) != 2 {
		t.Fatal(lines, err)
	}
	got := map[string]string{}
	for i, name := range lines[0] {
		got[name] = lines[1][i]
	}
	for name, want := range map[string]string{"cpu_seconds": "4.400000", "wall_seconds": "9.600000",
		"network_in": "5368709120", "network_out": "", "account": "'=cmd()", "score": "", "user": "ann"} {
		if got[name] != want {
			t.Errorf("%s: %q, not %q", name, got[name], want)
		}
	}
}

func TestSum(t *testing.T) {
	sum, err := NewSum("user")
	if err != nil {
		t.Fatal(err)
	}
	u := record()
	sum.Add(u)
	sum.Add(u) // brought twice
	u.ID, u.User = "x", "bob"
	sum.Add(u)
	lines := sum.Lines()
	if len(lines) != 2 || lines[0].Key != "ann" || lines[0].Records != 1 || lines[0].CoreHours != 2*9.6/3600 {
		t.Errorf("%+v", lines)
	}
	if _, err := NewSum("cell"); err == nil {
		t.Error("a host knows no cells")
	}
}

func TestQueueName(t *testing.T) {
	dir, file := QueueName(time.Unix(0x6750, 123456789), 0xabc)
	if dir != "00006720" || file != "000067501e240c" {
		t.Errorf("%s/%s", dir, file)
	}
}

// TestUnknownCPU: CPU time that is not known is 0 in no export and in no sum.
func TestUnknownCPU(t *testing.T) {
	u := record()
	u.Kind, u.CPU, u.Memory, u.Score, u.ScoreUnit = api.UsageMetal, nil, 0, 10, "HS06"
	if TakenByAPEL(u) || !TakenByAPEL(record()) {
		t.Error("the server of APEL refuses records without CpuDuration, and no others")
	}
	for _, text := range []string{Site{Name: "EXAMPLE"}.GridMessage([]api.Usage{u}),
		Site{Name: "EXAMPLE"}.CloudMessage([]api.Usage{u})} {
		if strings.Contains(text, "CpuDuration") {
			t.Error(text)
		}
	}
	var out bytes.Buffer
	if err := NewAuditor(&out, "EXAMPLE").Write(u); err != nil || strings.Contains(out.String(), "CPUSeconds") ||
		strings.Contains(out.String(), "Mem") || strings.Contains(out.String(), "Scratch") {
		t.Error(out.String(), err)
	}
	out.Reset()
	table, err := NewCSV(&out)
	if err != nil || table.Write(u) != nil || table.Flush() != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&out).ReadAll()
	if err != nil || rows[1][slices.Index(rows[0], "cpu_seconds")] != "" {
		t.Error(rows, err)
	}
	sum, err := NewSum("kind")
	if err != nil {
		t.Fatal(err)
	}
	sum.Add(u)
	if l := sum.Lines()[0]; l.CPUHours != 0 || l.CPUUnknown != 1 || math.Abs(l.CPUUnknownHours-9.6*2/3600) > 1e-9 {
		t.Errorf("%+v", l)
	}
	text, err := json.Marshal(u)
	var back api.Usage
	if err != nil || json.Unmarshal(text, &back) != nil || back.CPU != nil {
		t.Errorf("%s: %+v, %v", text, back, err)
	}
}
