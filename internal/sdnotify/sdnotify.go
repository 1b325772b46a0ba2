// Package sdnotify reports to systemd, or whatever else has set $NOTIFY_SOCKET, how a service does: sd_notify(3).
package sdnotify

import (
	"context"
	"fmt"
	"math"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// States.
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
	alive    = "WATCHDOG=1"
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
	// a name that begins with @ is abstract
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte(state))
	return err
}

// Watchdog returns the time within which systemd wants to be told that this process works; 0: it does not ask.
// sd_watchdog_enabled(3)
func Watchdog() time.Duration {
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	us, err := strconv.ParseUint(os.Getenv("WATCHDOG_USEC"), 10, 63)
	if err != nil || us > math.MaxInt64/1000 {
		return 0
	}
	return time.Duration(us) * time.Microsecond
}

// KeepAlive reports to systemd that the service works whenever works returns nil, four times within the watchdog's
// time, until ctx ends. failed is told why systemd was not; when that goes on, systemd ends the process with SIGABRT
// and starts it again.
func KeepAlive(ctx context.Context, works func(context.Context) error, failed func(error)) {
	every := Watchdog() / 4
	if every <= 0 {
		return
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		within, cancel := context.WithTimeout(ctx, every)
		err := works(within)
		cancel()
		if err == nil {
			err = Send(alive)
		}
		if err != nil && ctx.Err() == nil {
			failed(err)
		}
	}
}
