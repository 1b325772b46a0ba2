package topology

import (
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

func TestKind(t *testing.T) {
	for want, cpu := range map[string]farm.CPUModel{
		"amd-epyc-7302-2s":         {Vendor: "AuthenticAMD", Name: "AMD EPYC 7302 16-Core Processor"},
		"intel-xeon-e5-2650-v2-2s": {Vendor: "GenuineIntel", Name: "Intel(R) Xeon(R) CPU E5-2650 v2 @ 2.60GHz"},
		"intel-xeon-gold-6130-2s":  {Vendor: "GenuineIntel", Name: "Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz"},
		"amd-ryzen-7-5800x-2s":     {Vendor: "AuthenticAMD", Name: "AMD Ryzen 7 5800X 8-Core Processor"},
		"2s":                       {},
	} {
		if got := Kind(farm.Topology{CPU: cpu, Sockets: make([]farm.Socket, 2)}); got != want {
			t.Errorf("%q is %q, want %q", cpu.Name, got, want)
		}
	}
}
