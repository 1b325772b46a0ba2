package network

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/network/nwfilter"
)

// Traffic is how many bytes came to the VM of a QEMU process, and went from it, by its taps. ok is false where it has
// none: nobody counts what goes by QEMU itself.
func Traffic(pid int) (in, out uint64, ok bool) {
	taps, err := nwfilter.TapsHeld(pid)
	if err != nil || len(taps) == 0 {
		return 0, 0, false
	}
	for _, tap := range taps {
		sent, err := counter(tap, "tx_bytes") // by the host, to the VM
		received, other := counter(tap, "rx_bytes")
		if err != nil || other != nil {
			return 0, 0, false
		}
		in, out = in+sent, out+received
	}
	return in, out, true
}

func counter(device, name string) (uint64, error) {
	text, err := os.ReadFile(filepath.Join("/sys/class/net", device, "statistics", name))
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
}
