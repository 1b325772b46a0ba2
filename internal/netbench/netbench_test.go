package netbench

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/netbench/answerer"
	"github.com/grange-project/grange/internal/selftest/verdict"
)

// answering is an answerer, and what its run returned.
func answering(t *testing.T) (*answerer.Answerer, <-chan error) {
	t.Helper()
	a, err := answerer.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- a.Run(t.Context()) }()
	return a, ended
}

func options(a *answerer.Answerer) Options {
	return Options{Peer: a.Address(), Key: a.Key, Time: 50 * time.Millisecond, Packets: 100, Tell: func(string) {}}
}

// TestRun: a check of a network without loss; the answerer ends with it.
func TestRun(t *testing.T) {
	a, ended := answering(t)
	r, err := Run(t.Context(), options(a))
	if err != nil {
		t.Fatal(err)
	}
	if r.There.Bytes == 0 || r.Back.Bytes == 0 || r.There.Rate <= 0 || r.Back.Rate <= 0 {
		t.Errorf("nothing passed: %+v", r)
	}
	if f := r.Flood; f.Sent != 100 || f.Arrived != 100 || f.Returned != 100 || f.Median <= 0 || f.P99 < f.Median {
		t.Errorf("%+v", f)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestRefused: nobody is answered without the key, nor while there is another check; what is there goes on.
func TestRefused(t *testing.T) {
	a, ended := answering(t)
	o := options(a)
	o.Key = "00000000000000000000000000000000"
	var e *farm.Error
	if _, err := Run(t.Context(), o); !errors.As(err, &e) || e.Kind != farm.Denied {
		t.Errorf("a wrong key: %v", err)
	}
	first := checker{Options: options(a)}
	conn, err := first.open(t.Context(), answerer.Control)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, len(answerer.Ready)+1)); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), options(a)); !errors.As(err, &e) || e.Kind != farm.Conflict {
		t.Errorf("a second check: %v", err)
	}
	conn.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := Run(t.Context(), options(a)); !errors.As(err, &e) || e.Kind != farm.Unavailable {
		t.Errorf("nobody is there: %v", err)
	}
}

// TestNobodyAsks: an answerer whose time is over says that there was no check.
func TestNobodyAsks(t *testing.T) {
	a, err := answerer.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Run(ctx); err == nil {
		t.Error("no error")
	}
}

// TestLoss: 7 of 100 datagrams are lost, one comes back twice, one is not ours: 93 are back.
func TestLoss(t *testing.T) {
	there, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	go func() {
		var b [answerer.Datagram]byte
		for n := 0; ; n++ {
			_, from, err := there.ReadFrom(b[:])
			if err != nil {
				return
			}
			switch {
			case n >= 10 && n < 17:
				continue
			case n == 20:
				there.WriteTo(b[:], from)
			case n == 30:
				there.WriteTo(b[:8], from)
			}
			there.WriteTo(b[:], from)
		}
	}()
	conn, err := net.Dial("udp", there.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p := pinger{conn: conn, sent: make([]time.Time, 0, 100), took: make([]time.Duration, 100)}
	if err := p.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n, took := range p.took {
		if lost := n >= 10 && n < 17; lost != (took == 0) {
			t.Errorf("%d: took %v", n, took)
		}
	}
}

func TestJudge(t *testing.T) {
	even := Transfer{Rate: 1e9}
	for _, c := range []struct {
		name string
		r    Result
		want verdict.Verdict
	}{
		{"nothing lost", Result{even, even, Flood{Sent: 2000, Arrived: 2000, Returned: 2000}}, verdict.Good},
		{"one of many", Result{even, even, Flood{Sent: 10000, Arrived: 10000, Returned: 9999}}, verdict.Good},
		{"one of 2000", Result{even, even, Flood{Sent: 2000, Arrived: 1999, Returned: 1999}}, verdict.Warning},
		{"7 %", Result{even, even, Flood{Sent: 2000, Arrived: 1930, Returned: 1860}}, verdict.Bad},
		{"all lost", Result{even, even, Flood{Sent: 2000, Arrived: 2000}}, verdict.Bad},
		{"uneven", Result{even, Transfer{Rate: 1e8}, Flood{Sent: 9, Arrived: 9, Returned: 9}}, verdict.Warning},
		{"none back", Result{even, Transfer{}, Flood{Sent: 9, Arrived: 9, Returned: 9}}, verdict.Warning},
	} {
		f := Judge(c.r)
		if f.Verdict != c.want || f.Reason == "" || (f.Verdict == verdict.Good) != (f.Remedy == "") {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
	const want = "7 % of the datagrams are lost: of 2000 sent, 1930 arrived and 1860 came back"
	if got := Judge(Result{even, even, Flood{Sent: 2000, Arrived: 1930, Returned: 1860}}).Reason; got != want {
		t.Errorf("%s", got)
	}
}
