package config

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// Move is how other hosts bring their VMs to this one.
type Move struct {
	// ADDRESS:PORT while a VM is on its way here; without ADDRESS, the one that leads to the server; "": nowhere
	Listen string
}

type moveFile struct {
	Listen string `toml:"listen"`
}

func (f moveFile) parse() (Move, error) {
	listen, err := parseListen("move.listen", f.Listen)
	return Move{listen}, err
}

// parseListen reads where a host listens for others; "": nowhere.
func parseListen(key, listen string) (string, error) {
	if listen == "none" {
		return "", nil
	}
	host, port, err := net.SplitHostPort(listen)
	if n, bad := strconv.Atoi(port); err == nil && (bad != nil || n < 0 || n > 65535) {
		err = fmt.Errorf("invalid port %q", port)
	}
	if err == nil && host != "" {
		_, err = netip.ParseAddr(host)
	}
	if err != nil {
		return "", fmt.Errorf("%s is %q, neither ADDRESS:PORT, :PORT nor none: %w", key, listen, err)
	}
	return listen, nil
}
