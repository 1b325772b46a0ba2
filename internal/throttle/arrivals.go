package throttle

import (
	"strconv"
	"time"
)

// Arrivals bounds how many connections each user makes to a socket, and says when to log that a user makes more. It
// goes by the user alone, and costs as little for a user that floods the socket as for any other.
type Arrivals struct {
	served  Buckets // connections, by user
	notices Buckets // lines of the log, by user
	lines   Buckets // lines of the log, of all users
}

// perSecond is how many connections a second a user may make to a socket in the long run. A user's programs make some
// ten.
const perSecond = 512

// NewArrivals allows a user so many connections at once, and then perSecond.
func NewArrivals(atOnce int, now func() time.Time) *Arrivals {
	return &Arrivals{
		served:  Buckets{Size: max(atOnce, perSecond), Leak: time.Second / perSecond, Now: now},
		notices: Buckets{Size: 1, Leak: time.Minute, Now: now},
		lines:   Buckets{Size: 10, Leak: 6 * time.Second, Now: now},
	}
}

// Admit counts a connection of a user. It reports whether the user may make it now.
func (a *Arrivals) Admit(uid uint32) bool {
	room, _ := a.served.Add(key(uid))
	return room
}

// Dropped counts a connection of a user that was closed unread. It returns how many there were since the last report,
// if it is time to log that: once a minute for each user, and ten times a minute in all. Otherwise it returns 0.
func (a *Arrivals) Dropped(uid uint32) int {
	due, before := a.notices.Add(key(uid))
	if !due {
		return 0
	}
	if due, _ = a.lines.Add(""); !due {
		return 0
	}
	return before + 1
}

func key(uid uint32) string { return strconv.FormatUint(uint64(uid), 10) }
