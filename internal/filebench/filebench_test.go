package filebench

import (
	"context"
	"errors"
	"maps"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/filebench/load"
)

const output = `begin write
end write 2000000 1000000000 50
begin read
end read 4000000 500000000 50
begin create
end create 100 2000000000 100
begin stat
end stat 100 100000000 1
begin delete
end delete 100 200000000 2
done
`

func TestWatch(t *testing.T) {
	all, err := Watch(strings.NewReader(output), "fuse")
	if err != nil || len(all) != 5 {
		t.Fatalf("%+v, %v", all, err)
	}
	want := []float64{2e6, 8e6, 50, 1000, 500}
	for i, r := range all {
		if r.Gateway != "fuse" || r.Phase != load.Phases[i] || math.Abs(r.Rate-want[i]) > 1e-6 || r.CPUHost < 0 {
			t.Errorf("%+v", r)
		}
	}
	if all[0].CPUGuest != 0.5 || all[1].CPUGuest != 1 {
		t.Errorf("%+v", all)
	}
	for _, text := range []string{"", "done\n", output[:len(output)-6], strings.Replace(output, "end stat", "end", 1)} {
		if _, err := Watch(strings.NewReader(text), "fuse"); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

// phases are results of a gateway that is so many times as fast as another one.
func phases(g farm.Gateway, times float64) (all []Result) {
	for i, name := range load.Phases {
		all = append(all, Result{Gateway: string(g), Phase: name, Rate: times * float64(i+1)})
	}
	return all
}

// TestRun: gateways take turns; one that fails is left out, with its results of earlier rounds.
func TestRun(t *testing.T) {
	var turns []farm.Gateway
	o := Options{Gateways: []farm.Gateway{"a", "b", "c"}, Rounds: 2, Tell: func(string) {},
		One: func(_ context.Context, g farm.Gateway) ([]Result, error) {
			turns = append(turns, g)
			switch {
			case g == "a" || g == "b" && len(turns) > 3:
				return nil, errors.New("not here")
			case g == "c":
				return phases(g, float64(len(turns))), nil
			}
			return phases(g, 1), nil
		}}
	all, left, err := Run(t.Context(), o)
	if err != nil || !maps.Equal(left, map[farm.Gateway]string{"a": "not here", "b": "not here"}) ||
		!reflect.DeepEqual(turns, []farm.Gateway{"a", "b", "c", "b", "c"}) {
		t.Fatalf("%v, %v, %v", turns, left, err)
	}
	medians := Medians(all)
	if len(medians) != 5 || medians[0].Rounds != 2 || math.Abs(medians[0].Spread-5./3) > 1e-9 {
		t.Errorf("%+v", medians)
	}
	o.Gateways = o.Gateways[:1]
	if _, _, err := Run(t.Context(), o); !farm.IsCode(err, CodeBench) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestRecommend(t *testing.T) {
	v := Recommend(Medians(append(phases(farm.FUSE, 1), phases(farm.Virtiofs, 3)...)))
	if v.Choice != string(farm.Virtiofs) || math.Abs(v.Margin-3) > 1e-9 {
		t.Errorf("%+v", v)
	}
}

func TestKept(t *testing.T) {
	dir := t.TempDir()
	if k, err := ReadKept(dir); err != nil || len(k.FileSystems) != 0 {
		t.Errorf("%+v, %v", k, err)
	}
	if err := os.WriteFile(KeptFile(dir), []byte(`{"version":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if k, err := ReadKept(dir); err != nil || k.FileSystems == nil {
		t.Errorf("%+v, %v", k, err)
	}
	if err := os.WriteFile(KeptFile(dir), []byte(`{"version"`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadKept(dir); err == nil {
		t.Error("a torn file is read")
	}
}

// TestScores: what lacks a phase, or has none of a meaning, has no score.
func TestScores(t *testing.T) {
	all := append(phases(farm.FUSE, 1), phases(farm.Virtiofs, 3)...)
	m := Measurement{Time: time.Now(), Results: Medians(all)}
	s := m.Scores()
	if len(s) != 2 || math.Abs(s[farm.Virtiofs]/s[farm.FUSE]-3) > 1e-9 {
		t.Errorf("%v", s)
	}
	m.Results = m.Results[1:]
	m.Results[len(m.Results)-1].Rate = 0
	if s := m.Scores(); len(s) != 0 {
		t.Errorf("%v", s)
	}
}
