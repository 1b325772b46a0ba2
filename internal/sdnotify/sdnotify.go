// Package sdnotify reports to systemd, or whatever else has set $NOTIFY_SOCKET, how a service does: sd_notify(3).
package sdnotify

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// States.
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
)

// Reloading is the state of a service that reads its configuration again; Ready ends it.
func Reloading() string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return "RELOADING=1"
	}
	return fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/1000)
}

// Send reports a state. Where nobody listens it does nothing; an error is no reason to end.
func Send(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"}) // a name that begins with @ is abstract
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte(state))
	return err
}
