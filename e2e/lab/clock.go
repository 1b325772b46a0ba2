package lab

import (
	"fmt"
	"time"
)

// TellTime is a shell's command that prints the guest's time, as ClockOff takes it: busybox's date knows whole seconds
// only.
const TellTime = "set -- $(busybox adjtimex | grep time.tv); echo $2 $4"

// TellTimes prints the time for each line that is read.
const TellTimes = "while read x; do " + TellTime + "; done"

// ClockNear is how far a guest's clock may be off.
const ClockNear = 100 * time.Millisecond

// ClockOff returns how far a guest's clock is off the host's, at least: of a time that the guest printed between two
// moments.
func ClockOff(asked, came time.Time, line string) (time.Duration, error) {
	var sec, usec int64
	if _, err := fmt.Sscan(line, &sec, &usec); err != nil {
		return 0, fmt.Errorf("a guest's time is %q: %w", line, err)
	}
	switch now := time.UnixMicro(sec*1e6 + usec); {
	case now.Before(asked):
		return asked.Sub(now), nil
	case now.After(came):
		return now.Sub(came), nil
	}
	return 0, nil
}
