package transfer

import (
	"net/netip"
	"testing"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/chunk"
	"github.com/grange-project/grange/internal/farm"
)

// TestHostileReports: a host makes the server say no nonsense to others, and keeps it from nothing.
func TestHostileReports(t *testing.T) {
	l := newLab(t)
	digest := l.add(content(30, 1<<20)).String()
	for name, r := range map[string]fleet.TransferReport{
		"no address":        {Address: "example.org/x:1", Wants: []string{digest}},
		"no port":           {Address: "127.0.0.1"},
		"no digest":         {Wants: []string{"../../etc/passwd"}},
		"too many wishes":   {Wants: make([]string, mostWanted+1)},
		"too many holdings": {Holds: make([]string, mostFiles+1)},
	} {
		if _, err := l.source.Locate("evil", loopback, r, time.Now()); !farm.IsCode(err, farm.CodeBadRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	a, err := l.source.Locate("a", loopback, fleet.TransferReport{Wants: []string{digest}}, time.Now())
	if err != nil || len(a.Transfers) != 1 || len(a.Transfers[0].Peers) != 0 {
		t.Errorf("%+v, %v", a, err)
	}
}

// loopback is where the reports of a test's hosts come from.
var loopback = netip.MustParseAddr("127.0.0.1")

// TestForeignAddress: others are told of no address but that from which a host's report came.
func TestForeignAddress(t *testing.T) {
	l := newLab(t)
	digest := l.add(content(30, 1<<20)).String()
	for _, c := range []struct {
		from, address string
		told          bool
	}{
		{"10.1.2.3", "10.1.2.3:8446", true},
		{"::ffff:10.1.2.3", "10.1.2.3:8446", true},
		{"fe80::1%eth0", "[fe80::1]:8446", true},
		{"10.1.2.3", "10.1.2.4:22", false},
		{"10.1.2.3", "127.0.0.1:22", false},
		{"10.1.2.3", "10.1.2.3:8446", true},
		{"10.1.2.3", "", false},
	} {
		r := fleet.TransferReport{Address: c.address, Holds: []string{digest}}
		if _, err := l.source.Locate("holder", netip.MustParseAddr(c.from), r, time.Now()); err != nil {
			t.Fatal(err)
		}
		a, err := l.source.Locate("wants", loopback, fleet.TransferReport{Wants: []string{digest}}, time.Now())
		if err != nil || len(a.Transfers) != 1 {
			t.Fatalf("%+v, %v", a, err)
		}
		peers := a.Transfers[0].Peers
		if told := len(peers) == 1 && peers[0].Address == c.address; told != c.told || len(peers) > 1 {
			t.Errorf("%+v: others are told %v", c, peers)
		}
	}
	if _, err := l.source.Locate("unknown", netip.Addr{}, fleet.TransferReport{Address: "10.0.0.1:1",
		Holds: []string{digest}}, time.Now()); err != nil || len(l.source.refused) != 1 {
		t.Errorf("%v, %v", err, l.source.refused)
	}
}

// TestTracker: hosts are known by what they said last, for a while.
func TestTracker(t *testing.T) {
	var tracker Tracker
	now, file, other := time.Unix(1e9, 0), chunk.Sum{1}, chunk.Sum{2}
	tracker.Has("a", "10.0.0.1:1", []chunk.Sum{file, other}, now)
	tracker.Has("b", "10.0.0.2:1", []chunk.Sum{file}, now)
	tracker.Has("closed", "", []chunk.Sum{file}, now)
	if got := tracker.Peers(file, "a", now); len(got) != 1 || got[0].Host != "b" {
		t.Error(got)
	}
	tracker.Has("b", "10.0.0.2:1", []chunk.Sum{other}, now)
	if got := tracker.Peers(file, "a", now); len(got) != 0 {
		t.Error("b has it no more:", got)
	}
	if got := tracker.Peers(file, "b", now.Add(believed+time.Second)); len(got) != 0 {
		t.Error("nobody said it lately:", got)
	}
	for n := range 3 * mostPeers {
		tracker.Has(string(rune('A'+n)), "10.0.0.3:1", []chunk.Sum{file}, now)
	}
	if got := tracker.Peers(file, "A", now); len(got) != mostPeers {
		t.Error(len(got), "are named")
	}
}
