package config

import (
	"fmt"
	"slices"
	"time"
)

// Heartbeat says when a guest is unresponsive, and what becomes of it then.
type Heartbeat struct {
	Timeout  time.Duration // 0: guests are not asked
	Watchdog bool          // VMs of full images get a watchdog, which their guests may use
	Action   HeartbeatAction
}

// HeartbeatAction is what is done about an unresponsive guest.
type HeartbeatAction string

// The actions. No job is run again: of a VM of jobs, restart means end.
const (
	HeartbeatReport  HeartbeatAction = "report"  // show it
	HeartbeatRestart HeartbeatAction = "restart" // start a cloud VM anew
	HeartbeatEnd     HeartbeatAction = "end"     // end the VM; a cloud VM stays off
)

type heartbeatFile struct {
	Timeout  string `toml:"timeout"`
	Watchdog bool   `toml:"watchdog"`
	Action   string `toml:"action"`
}

const leastHeartbeat = time.Second

func (f heartbeatFile) heartbeat() (h Heartbeat, err error) {
	h.Action, h.Watchdog = HeartbeatAction(f.Action), f.Watchdog
	if !slices.Contains([]HeartbeatAction{HeartbeatReport, HeartbeatRestart, HeartbeatEnd}, h.Action) {
		return h, fmt.Errorf("heartbeat.action: invalid value %q: expected report, restart or end", f.Action)
	}
	if h.Timeout, err = time.ParseDuration(f.Timeout); err != nil {
		return h, fmt.Errorf("heartbeat.timeout: %w", err)
	}
	if h.Timeout != 0 && h.Timeout < leastHeartbeat {
		return h, fmt.Errorf("heartbeat.timeout: %v is less than %v", h.Timeout, leastHeartbeat)
	}
	return h, nil
}
