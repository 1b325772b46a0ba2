package networks

import (
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/execjob"
)

// TestPeer: where the side that answers is found, by what a VM says of itself; nothing that a shell or another flag
// would be comes of it.
func TestPeer(t *testing.T) {
	key := strings.Repeat("0a", 16)
	for _, c := range []struct {
		at   answering
		want string // "": refused
	}{
		{answering{"[::]:4000", key, []string{"2001:db8::7", "192.0.2.7"}}, "192.0.2.7:4000"},
		{answering{"[::]:4000", key, []string{"2001:db8::7"}}, "[2001:db8::7]:4000"},
		{answering{"[::]:4000", key, []string{"127.0.0.1", "fe80::1%eth0", "fe80::1", "--help"}}, ""},
		{answering{"[::]:4000", key, nil}, ""},
		{answering{"[::]:4000", "x", []string{"192.0.2.7"}}, ""},
		{answering{"--help", key, []string{"192.0.2.7"}}, ""},
	} {
		if got, err := c.at.peer(); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%+v: %q, %v", c.at, got, err)
		}
	}
}

func TestNetworksValid(t *testing.T) {
	good := checkFlags{networks: "a,b", time: time.Second, packets: 1}
	if err := good.valid(nil); err != nil {
		t.Error(err)
	}
	if good.valid([]string{"a:1"}) == nil {
		t.Error("an address beside it is taken")
	}
	for _, f := range []checkFlags{{networks: "a"}, {networks: "a", time: time.Second, packets: 1, name: "x"},
		{networks: "a,", time: time.Second, packets: 1}, {networks: "a, b", time: time.Second, packets: 1},
		{networks: "a,a", time: time.Second, packets: 1}, {networks: "a,user", time: time.Second, packets: 1},
		{networks: "a", time: time.Second, packets: 1, between: "a,b"}, {image: "el9", show: true}} {
		if f.valid(nil) == nil {
			t.Errorf("%+v is taken", f)
		}
	}
	refused := execjob.End{Refused: true, Code: "no-room", Details: []string{"no CPUs"}}
	if text := notMeasured("a", refused).Error(); !strings.Contains(text, "not started: no CPUs") {
		t.Error(text)
	}
	if text := notMeasured("a", execjob.End{Status: 1}).Error(); !strings.Contains(text, "status 1") {
		t.Error(text)
	}
}
