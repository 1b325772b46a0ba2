package ledger

import (
	"context"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

// gigabit is a ledger whose host's network carries 1 Gbit/s, of which a user may have 600 Mbit/s each way.
func gigabit(carries *farm.Rate) *Ledger {
	l := New(topologytest.CERN2650v2(), numa.Reserve{}, Host{Bandwidth: func() farm.Rate { return *carries }})
	l.SetLimits(policy.Limits{CPUs: policy.Share{Percent: 100}, Memory: policy.Share{Percent: 100},
		Bandwidth: policy.Share{Percent: 60}}, 0)
	return l
}

func TestBandwidth(t *testing.T) {
	carries := farm.Rate(1e9)
	l := gigabit(&carries)
	claim := func(id string, uid uint32, in, out farm.Rate) error {
		l.SetCharge(id, Charge{UID: uid, Limited: uid != 0, Bandwidth: farm.Bandwidth{In: in, Out: out}})
		_, err := l.Claim(t.Context(), id, id, request(1, "0-31"), true, func(string) {})
		return err
	}
	for _, c := range []struct {
		id      string
		uid     uint32
		in, out farm.Rate
		want    farm.Code
	}{
		{"a", 0, 300e6, 0, ""},
		{"b", 1, 500e6, 100e6, ""},
		{"c", 1, 101e6, 0, CodeUserLimit},
		{"d", 1, 0, 601e6, CodeUserLimit},
		{"e", 0, 201e6, 0, farm.CodeNoRoom},
		{"f", 0, 0, 1001e6, farm.CodeTooBig},
		{"g", 2, 200e6, 600e6, ""},
		{"h", 3, 0, 0, ""},
	} {
		err := claim(c.id, c.uid, c.in, c.out)
		if c.want == "" && err != nil || c.want != "" && !farm.IsCode(err, c.want) {
			t.Errorf("%s: %v, want %q", c.id, err, c.want)
		}
	}
	if b := l.Booked(nil); b != (farm.Bandwidth{In: 1e9, Out: 700e6}) {
		t.Errorf("%+v are booked", b)
	}
	carries = 0 // as after a change of the host's routes: what is booked stays
	if err := claim("i", 4, 1e6, 0); !farm.IsCode(err, farm.CodeTooBig) || !strings.Contains(err.Error(), "0bit/s") {
		t.Error(err)
	}
	if err := claim("j", 4, 0, 0); err != nil {
		t.Error(err)
	}
}

// TestBandwidthComesBack: who waits for bandwidth alone keeps nobody waiting, and has it when it is free.
func TestBandwidthComesBack(t *testing.T) {
	carries := farm.Rate(1e9)
	l := gigabit(&carries)
	claim := func(id string, in farm.Rate) (waiting, done chan error) {
		waiting, done = make(chan error, 9), make(chan error, 1)
		l.SetCharge(id, Charge{Bandwidth: farm.Bandwidth{In: in}})
		go func() {
			_, err := l.Claim(context.Background(), id, id, request(1, "0-31"), false, func(string) { waiting <- nil })
			done <- err
		}()
		return waiting, done
	}
	_, done := claim("a", 800e6)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	waiting, second := claim("b", 300e6)
	<-waiting
	_, done = claim("c", 200e6)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	l.Release("a")
	if err := <-second; err != nil {
		t.Fatal(err)
	}
}

// TestBandwidthOfCloud: a cloud VM is not asked again for what it has, and finds what jobs have left.
func TestBandwidthOfCloud(t *testing.T) {
	carries := farm.Rate(1e9)
	l := gigabit(&carries)
	plan := func(room numa.Room, _ farm.CPUSet) (farm.Plan, error) { return numa.Plan(room, request(1, "0-31")) }
	of := func(in farm.Rate) Charge { return Charge{Bandwidth: farm.Bandwidth{In: in}} }
	l.SetCharge("job", of(300e6))
	if _, err := l.Claim(t.Context(), "job", "job", request(1, "0-31"), true, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if err := l.CheckCloud("a", "", of(701e6), plan); !farm.IsCode(err, farm.CodeNoRoom) {
		t.Errorf("beside a job: %v", err)
	}
	if _, err := l.ClaimCloud("a", "a", "", of(700e6), plan); err != nil {
		t.Error(err)
	}
	if b := l.Booked(nil); b.In != 300e6 {
		t.Errorf("the server did not place %v", b.In)
	}
	if b := l.Booked(map[string]bool{"a": true}); b.In != 1e9 {
		t.Errorf("with one that it does not know: %v", b.In)
	}
	carries = 0
	if _, err := l.ClaimCloud("a", "a", "", of(700e6), plan); err != nil {
		t.Errorf("it starts again: %v", err)
	}
	if err := l.CheckCloud("a", "", of(701e6), plan); !farm.IsCode(err, farm.CodeTooBig) {
		t.Errorf("more: %v", err)
	}
}
