package config

import (
	"testing"
	"time"
)

func TestHeartbeat(t *testing.T) {
	for text, want := range map[string]Heartbeat{
		"":                                   {Timeout: 5 * time.Minute, Watchdog: true, Action: HeartbeatReport},
		"watchdog = false":                   {Timeout: 5 * time.Minute, Action: HeartbeatReport},
		"timeout = '0s'\naction = 'end'":     {Watchdog: true, Action: HeartbeatEnd},
		"timeout = '1s'":                     {Timeout: time.Second, Watchdog: true, Action: HeartbeatReport},
		"timeout = '1m'\naction = 'restart'": {Timeout: time.Minute, Watchdog: true, Action: HeartbeatRestart},
	} {
		if a, err := ParseAgent([]byte("[heartbeat]\n"+text), "test"); err != nil || a.Heartbeat != want {
			t.Errorf("%q: %+v, %v; want %+v", text, a.Heartbeat, err, want)
		}
	}
	for _, text := range []string{"timeout = '1'", "timeout = '999ms'", "timeout = '-1s'", "action = 'reset'",
		"watchdog = 'reset'"} {
		if _, err := ParseAgent([]byte("[heartbeat]\n"+text), "test"); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}
