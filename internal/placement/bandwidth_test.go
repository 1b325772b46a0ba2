package placement

import (
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// TestBooked: what jobs have booked on a host is not there for VMs of the fleet.
func TestBooked(t *testing.T) {
	f := town(1, farm.Cell{}, func(_ int, h *Host) {
		h.Bandwidth, h.Booked = 10e9, farm.Bandwidth{In: 6e9}
	})
	with := func(vm string, in farm.Rate) Request {
		return ask(vm, 1, func(r *Request) { r.Shape.Bandwidth = farm.Bandwidth{In: in} })
	}
	if _, err := f.Claim(with("a", 5e9)); err == nil {
		t.Error("jobs have it")
	}
	if why, err := f.Why(with("a", 5e9)); err != nil || why.Each[0].Constraint != NoBandwidth {
		t.Errorf("%+v, %v", why.Each, err)
	}
	if _, err := f.Claim(with("a", 4e9)); err != nil {
		t.Error(err)
	}
}

// TestBandwidth: a host takes VMs until its network is booked, in either direction, and then those without bandwidth.
func TestBandwidth(t *testing.T) {
	f := town(2, farm.Cell{}, func(i int, h *Host) {
		if i == 0 { // and nothing is known of the other one's
			h.Bandwidth = 10e9
		}
	})
	with := func(vm string, in, out farm.Rate) Request {
		return ask(vm, 1, func(r *Request) { r.Shape.Bandwidth = farm.Bandwidth{In: in, Out: out} })
	}
	for _, r := range []Request{with("a", 6e9, 1e9), with("b", 4e9, 0), with("c", 0, 9e9)} {
		if p, err := f.Claim(r); err != nil || p.Host != "h0" {
			t.Fatalf("%s is on %q: %v", r.VM, p.Host, err)
		}
	}
	for _, r := range []Request{with("d", 1e6, 0), with("d", 0, 1e6)} {
		_, err := f.Claim(r)
		if err == nil || !strings.Contains(err.Error(), phrases[NoBandwidth]) {
			t.Fatalf("%v: %v", r.Shape.Bandwidth, err)
		}
		why, err := f.Why(r)
		if err != nil || why.Each[0].Constraint != NoBandwidth || why.Each[1].Constraint != TooBig {
			t.Fatalf("%+v: %v", why.Each, err)
		}
		if want := "10Gbit/s in and 10Gbit/s out of its 10Gbit/s are booked"; why.Each[0].Message != want {
			t.Errorf("%q, want %q", why.Each[0].Message, want)
		}
	}
	if _, err := f.Claim(ask("e", 1)); err != nil {
		t.Errorf("without bandwidth: %v", err)
	}
	f.Release("b")
	if p, err := f.Claim(with("d", 4e9, 0)); err != nil || p.Host != "h0" {
		t.Errorf("after one has gone: %q, %v", p.Host, err)
	}
	resized := with("d", 5e9, 0).Shape
	if _, err := f.Resize("d", resized); err == nil {
		t.Error("a VM gets more bandwidth than is free")
	}
	resized.Bandwidth.In = 2e9
	if _, err := f.Resize("d", resized); err != nil {
		t.Errorf("less bandwidth: %v", err)
	}
	h := f.hosts["h0"]
	h.Bandwidth = 0 // as after a change of its routes
	resized.CPUs++
	if _, err := f.Resize("d", resized); err != nil {
		t.Errorf("a CPU more, where the speed of the link is not known: %v", err)
	}
	resized.Bandwidth.Out = 1e6
	if _, err := f.Resize("d", resized); err == nil {
		t.Error("more bandwidth, where the speed of the link is not known")
	}
	h.Bandwidth = 10e9
	if p, err := f.Claim(with("f", 2e9, 0)); err != nil || p.Bandwidth.In != 2e9 {
		t.Errorf("what a resize has left: %v, %v", p.Bandwidth, err)
	}
}
