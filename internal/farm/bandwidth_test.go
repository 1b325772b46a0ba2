package farm_test

import (
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

func TestParseRate(t *testing.T) {
	for text, want := range map[string]string{"100M": "100M", "2.5G": "2500M", "10Gbit/s": "10G", "10 Gbit": "10G",
		"1500000": "1500K", "0": "0", "1t": "1T", "0.1G": "100M"} {
		r, err := farm.ParseRate(text)
		if err != nil || r.String() != want {
			t.Errorf("%q is %v (%v), want %s", text, r, err, want)
		}
	}
	for _, text := range []string{"", "fast", "-1M", "NaN", "1e30G", "10GB"} {
		if r, err := farm.ParseRate(text); err == nil {
			t.Errorf("%q is %v", text, r)
		}
	}
}

func TestBandwidthFits(t *testing.T) {
	const card = farm.Rate(10e9)
	booked := farm.Bandwidth{In: 9e9, Out: 1e9}
	for _, c := range []struct {
		want farm.Bandwidth
		fits bool
	}{{farm.Bandwidth{}, true}, {farm.Bandwidth{In: 1e9}, true}, {farm.Bandwidth{In: 1e9 + 1}, false},
		{farm.Bandwidth{Out: 9e9}, true}, {farm.Bandwidth{In: 2e9, Out: 1}, false}} {
		if got := c.want.Fits(card, booked); got != c.fits {
			t.Errorf("%v fits: %v", c.want, got)
		}
	}
	if !(farm.Bandwidth{}).Fits(0, booked) || (farm.Bandwidth{Out: 1e6}).Fits(0, farm.Bandwidth{}) {
		t.Error("a host whose network is not known takes VMs without bandwidth, and no others")
	}
}

// TestCheckBandwidth: what nothing could hold is refused, not stored and ignored.
func TestCheckBandwidth(t *testing.T) {
	for _, k := range farm.NetworkKinds {
		s := farm.Shape{Network: farm.Network(k.Name)}
		if of := map[string]string{"NAME": "br0", "ID": "7", "VNI": "7", "CARD": "eth0"}[k.Of]; of != "" {
			s.Network += farm.Network(":" + of)
		}
		if err := s.CheckBandwidth(); err != nil {
			t.Errorf("%s without bandwidth: %v", k.Name, err)
		}
		s.Bandwidth.In = 1e9
		if err := s.CheckBandwidth(); (err == nil) != k.Limited {
			t.Errorf("%s with bandwidth: %v", k.Name, err)
		}
	}
	s := farm.Shape{CPUs: 1, Memory: farm.GiB, Network: farm.NetworkNone}
	for _, bad := range []farm.Bandwidth{{In: 1}, {Out: farm.MaxRate + 1}} {
		if s.Bandwidth = bad; s.Validate() == nil {
			t.Errorf("%v is valid", bad)
		}
	}
}
