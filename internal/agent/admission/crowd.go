package admission

import (
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// crowd is the connections of all users together, but for those who have no limits.
type crowd struct {
	mu   sync.Mutex
	most int // 0: a share of the files that this process may have open
	open int
	of   map[uint32][]*Connection // by user, in the order of their arrival
}

// The other half of the files that the agent may have open is for VMs, images and programs.
const (
	shareOfFiles = 2
	leastOfAll   = 128
)

// enter adds a connection of a user. Where there are as many as there may be, the user who has the most makes room: it
// returns which connection is to be closed. It reports false where nobody has more than the user would have.
func (a *crowd) enter(c *Connection, user uint32) (closes *Connection, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.most == 0 {
		a.most = mostOfAll()
	}
	if a.open >= a.most {
		busiest := a.busiest()
		if len(a.of[busiest]) <= len(a.of[user])+1 {
			return nil, false
		}
		closes = leastMissed(a.of[busiest])
		a.drop(closes, busiest)
	}
	if a.of == nil {
		a.of = map[uint32][]*Connection{}
	}
	a.of[user] = append(a.of[user], c)
	a.open++
	return closes, true
}

// leave ends what enter began.
func (a *crowd) leave(c *Connection, user uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(c, user)
}

func (a *crowd) drop(c *Connection, user uint32) {
	i := slices.Index(a.of[user], c)
	if i < 0 { // it has made room
		return
	}
	a.open--
	if a.of[user] = slices.Delete(a.of[user], i, i+1); len(a.of[user]) == 0 {
		delete(a.of, user)
	}
}

func (a *crowd) busiest() (user uint32) {
	for u, those := range a.of {
		if len(those) > len(a.of[user]) {
			user = u
		}
	}
	return user
}

// leastMissed returns the newest connection on which no request is served, or the newest: a job that has run for long
// keeps its VM.
func leastMissed(those []*Connection) *Connection {
	for _, c := range slices.Backward(those) {
		if c.serving.Load() == 0 {
			return c
		}
	}
	return those[len(those)-1]
}

func mostOfAll() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return leastOfAll
	}
	return max(leastOfAll, int(min(limit.Cur, 1<<20))/shareOfFiles)
}
