package metadata

import (
	"bufio"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// neighbours is the kernel's table of who has which address on a device.
type neighbours struct{ file, device string }

// atfComplete is ATF_COM of <linux/if_arp.h>: the kernel knows the entry's hardware address.
const atfComplete = 0x2

// mac is the hardware address that an address has there.
func (n neighbours) mac(address netip.Addr) (net.HardwareAddr, bool) {
	f, err := os.Open(n.file)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// IP address, HW type, Flags, HW address, Mask, Device: proc(5). The first line has these words.
		fields := strings.Fields(lines.Text())
		if len(fields) != 6 || fields[5] != n.device || fields[0] != address.String() {
			continue
		}
		flags, err := strconv.ParseUint(fields[2], 0, 32)
		if err != nil || flags&atfComplete == 0 {
			continue
		}
		if mac, err := net.ParseMAC(fields[3]); err == nil {
			return mac, true
		}
	}
	return nil, false
}
