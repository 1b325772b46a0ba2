package networks

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/netbench"
	"github.com/grange-project/grange/internal/selftest/verdict"
)

func TestTable(t *testing.T) {
	fast := netbench.Transfer{Rate: 1e9, CPUHere: 1, CPUThere: 0.5}
	c := checkOf("10.0.0.5:4000", "vlan:120", netbench.Result{There: fast, Back: fast,
		Flood: netbench.Flood{Sent: 100, Arrived: 95, Returned: 93, Median: 0.25, P99: 1}}, time.Unix(0, 0))
	if c.Verdict != verdict.Bad {
		t.Errorf("%+v", c)
	}
	text := table([]check{c})
	for _, want := range []string{"vlan:120", "1000.0 Mb/s", "1.0/0.5", "0.250 ms", "7.00 %", "bad", "To do: "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if svg := picture([]check{c}); !strings.Contains(svg, "loss 7.00 %") {
		t.Error(svg)
	}
	if c := checkOf("10.0.0.5:4000", "", netbench.Result{}, time.Unix(0, 0)); c.Name != "10.0.0.5:4000" {
		t.Errorf("without a name it is %q", c.Name)
	}
}

func TestValid(t *testing.T) {
	key := strings.Repeat("0", 32)
	good := checkFlags{key: key, time: time.Second, packets: 1}
	if err := good.valid([]string{"a:1"}); err != nil {
		t.Error(err)
	}
	if err := (checkFlags{show: true}).valid(nil); err != nil {
		t.Error(err)
	}
	for _, f := range []checkFlags{{}, {key: key, packets: 1}, {key: key, time: time.Second}, {show: true}, {key: "a",
		time: time.Second, packets: 1}, {key: key, time: time.Hour, packets: 1},
		{key: key, time: time.Second, packets: mostPackets + 1}} {
		if f.valid([]string{"a:1"}) == nil {
			t.Errorf("%+v is taken", f)
		}
	}
	if good.valid(nil) == nil {
		t.Error("no address is taken")
	}
}

// TestReadKept: what is not there is empty, and can be added to.
func TestReadKept(t *testing.T) {
	k, err := readKept(filepath.Join(t.TempDir(), "none"))
	if err == nil || k.Checks == nil {
		t.Errorf("%+v, %v", k, err)
	}
}
