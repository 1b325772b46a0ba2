package work

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// TestMain lets the workload fork start this program, as it starts grange-guest.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == Name {
		os.Exit(Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// TestServe has a worker do each workload, and say no to what is none.
func TestServe(t *testing.T) {
	in, orders := io.Pipe()
	answers, out := io.Pipe()
	go func() { out.CloseWithError(serve(in, out)) }()
	lines := bufio.NewReader(answers)
	if line, err := lines.ReadString('\n'); err != nil || line != Up+"\n" {
		t.Fatal(line, err)
	}
	ask := func(o Order) (a Answer) {
		t.Helper()
		go json.NewEncoder(orders).Encode(o)
		line, err := lines.ReadString('\n')
		if err == nil {
			err = json.Unmarshal([]byte(line), &a)
		}
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for _, w := range Workloads {
		if a := ask(Order{w.Name, 2, time.Millisecond}); a.Rate <= 0 || a.Error != "" || w.unit == "" || w.About == "" {
			t.Errorf("%s: %+v", w.Name, a)
		}
	}
	for _, o := range []Order{{"none", 1, time.Second}, {"integer", 0, time.Second}, {"integer", 1, 0},
		{Program + "p=exit 3", 1, time.Second}, {Program + "p=echo much", 1, time.Second}, {Program + "p=true", 1, 1}} {
		if a := ask(o); a.Error == "" {
			t.Errorf("%+v: %+v", o, a)
		}
	}
	if a := ask(Order{Program + "p=echo done; echo $((21 * GRANGE_BENCH_THREADS))", 2, 1}); a.Rate != 42 {
		t.Errorf("%+v", a)
	}
}

func TestScore(t *testing.T) {
	for text, want := range map[string]float64{"12.5\n": 12.5, "a\nTriad: 1024.0\n": 1024, "{\"score\": 7.25}": 7.25,
		"": 0, "\n": 0, "much": 0, "-1": 0, "0": 0, "NaN": 0, "{\"scores\": 1}": 0} {
		got, err := Score([]byte(text))
		if want == 0 && err == nil || want != 0 && (got != want || err != nil) {
			t.Errorf("%q: %g, %v", text, got, err)
		}
	}
	if _, err := Score([]byte(strings.Repeat("x", 1<<20))); err == nil || len(err.Error()) > 400 {
		t.Error("a long word is repeated")
	}
}
