package demand

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/capacity"
	"github.com/grange-project/grange/internal/farm"
)

// TestRead: each record is read as it is, whichever it is.
func TestRead(t *testing.T) {
	const s, m = time.Second, time.Minute
	for _, c := range []struct {
		file    string
		want    []capacity.Job
		until   time.Duration
		skipped int
	}{
		{"sacct.txt", []capacity.Job{{Submit: 0, Wall: m, CPUs: 1, Memory: 2000 * farm.MiB},
			{Submit: 10 * s, Wall: time.Hour, CPUs: 8, Memory: 16 * farm.GiB},
			{Submit: m, Wall: 25*time.Hour + 30*s, CPUs: 4, Memory: 8 * farm.GiB},
			{Submit: 2 * m, Wall: 5*m + 30*s, CPUs: 2, Memory: 16 * farm.GiB}}, 25*time.Hour + 90*s, 2},
		{"usage.csv", []capacity.Job{{Submit: 0, Wall: time.Hour, CPUs: 8, Memory: 16 * farm.GiB},
			{Submit: m, Wall: 60*s + 500*time.Millisecond, CPUs: 2, Memory: 4 * farm.GiB}}, time.Hour, 0},
		{"trace.json", []capacity.Job{{Submit: 0, Wall: 2 * m, CPUs: 4, Memory: 8 * farm.GiB},
			{Submit: m, Wall: 3 * m, CPUs: 8, Memory: 16 * farm.GiB},
			{Submit: 3 * m, Wall: m, CPUs: 1, Memory: 2 * farm.GiB}}, 4 * m, 0},
	} {
		f, err := os.Open(filepath.Join("testdata", c.file))
		if err != nil {
			t.Fatal(err)
		}
		got, err := Read(f)
		f.Close()
		if err != nil || !slices.Equal(got.Jobs, c.want) || got.Until != c.until || got.Skipped != c.skipped {
			t.Errorf("%s: %+v, %v", c.file, got, err)
		}
	}
}

// TestReadNonsense: what is no record is refused, with the line.
func TestReadNonsense(t *testing.T) {
	const head = "JobID|Submit|ElapsedRaw|AllocCPUS|ReqMem\n"
	for _, c := range []struct{ text, want string }{
		{"", "empty"}, {"JobID|Submit", "no jobs"}, {"a|b\n1|2\n", "columns"}, {head, "no job that ran"},
		{head + "1|2026-10-01T00:00:00|60|many|2G\n", "line 2"}, {head + "1|yesterday|60|1|2G\n", "line 2"},
		{head + "1|2026-10-01T00:00:00|60|1|2Q\n", "line 2"}, {head + "1|2026-10-01T00:00:00|-60|1|2G\n", "line 2"},
		{head + "1|2026-10-01T00:00:00|9999999999|1|2G\n", "line 2"},
		{head + "1|2026-10-01T00:00:00|60|1|9000000T\n", "line 2"},
		{head + "1|1026-10-01T00:00:00|60|1|2G\n2|2026-10-01T00:00:00|60|1|2G\n", "hundred years"},
		{"start,wall_seconds,cores,memory\n2026-10-01T00:00:00Z,1e300,1,1\n", "line 2"},
		{"start,wall_seconds,cores,memory\n2026-10-01T00:00:00Z,NaN,1,1\n", "line 2"},
		{`{"events": []}`, "no VMs"}, {`{"events": [{"ev": "depart", "id": 1}]}`, "event 1"}, {`{`, "EOF"},
	} {
		if _, err := Read(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v", c.text, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, name := range []string{"sacct.txt", "usage.csv", "trace.json"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Read(strings.NewReader(text))
		if err != nil {
			return
		}
		for i, j := range got.Jobs {
			if j.Wall < 0 || j.Submit < 0 || j.CPUs < 1 || i > 0 && j.Submit < got.Jobs[i-1].Submit {
				t.Fatalf("%+v", got.Jobs)
			}
		}
	})
}
