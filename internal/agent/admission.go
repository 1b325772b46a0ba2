package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
)

// The agent is everybody's, and its connections, memory and file descriptors are few. admission gives each user a share
// that is more than a host full of their jobs needs, so that nobody shuts others out. The administrator's share is all.
type admission struct {
	mu    sync.Mutex
	open  map[uint32]int           // connections by user
	large map[uint32]chan struct{} // held, by user, while a large body is read
	deaf  time.Time                // when a connection could not be taken last
}

// A job has a connection for its events and one for its heartbeats, and now and then a third. Small hosts have few
// jobs, and people with many shells.
const (
	connectionsOfJob = 3
	leastConnections = 256
	smallBody        = 1 << 20
)

// bodyTime is long for 128 MiB from a process of this host, and no time to starve others in.
var bodyTime = time.Minute

// mostJobs is how many jobs a user may have here: more than fit, for some wait.
func (a *Agent) mostJobs() int { return 4*a.hostCPUs() + 64 }

func (a *Agent) mostConnections() int { return max(leastConnections, connectionsOfJob*a.mostJobs()) }

// door is a listener that knows who comes.
type door struct {
	*net.UnixListener
	agent *Agent
	free  func(uid uint32) bool // of the limit
}

// connection is one of a known user.
type connection struct {
	*net.UnixConn
	start uint64 // of the process that made it, as Caller has it; 0: it was gone when the connection was taken
	leave func() // once
}

func (c *connection) Close() error {
	c.leave()
	return c.UnixConn.Close()
}

// Accept takes the next connection of somebody who has not too many. One too many is closed: its caller comes again, as
// after a restart of the agent, and nothing is spent on an answer.
func (d door) Accept() (net.Conn, error) {
	for {
		conn, err := d.AcceptUnix()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				d.agent.admission.note(time.Now())
			}
			return nil, err
		}
		cred, err := peerCred(conn)
		if err != nil { // it has gone
			conn.Close()
			continue
		}
		limit := d.agent.mostConnections()
		if d.free(cred.Uid) {
			limit = 0
		}
		if !d.agent.admission.enter(cred.Uid, limit) {
			conn.Close()
			continue
		}
		// now: by the time that the request is here, the number may be another process's
		start, _ := machine.StartOf(int(cred.Pid))
		return &connection{conn, start, sync.OnceFunc(func() { d.agent.admission.leave(cred.Uid) })}, nil
	}
}

func peerCred(conn *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var inner error
	if err = raw.Control(func(fd uintptr) {
		cred,
			inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err == nil {
		err = inner
	}
	return cred, err
}

// enter counts a connection; a limit of 0 is none.
func (d *admission) enter(uid uint32, limit int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if limit > 0 && d.open[uid] >= limit {
		return false
	}
	if d.open == nil {
		d.open = map[uint32]int{}
	}
	d.open[uid]++
	return true
}

func (d *admission) leave(uid uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open[uid]--; d.open[uid] == 0 {
		delete(d.open, uid)
	}
}

func (d *admission) note(now time.Time) {
	d.mu.Lock()
	d.deaf = now
	d.mu.Unlock()
}

// reachable reports whether callers could reach us for as long as they may be silent: an agent without file descriptors
// must not pause their VMs.
func (d *admission) reachable() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	// in that second net/http tries to accept again
	return d.deaf.IsZero() || time.Since(d.deaf) > machine.HeartbeatTimeout+time.Second
}

// carry waits until no other large body of the user is being read.
func (d *admission) carry(ctx context.Context, uid uint32) (done func(), err error) {
	d.mu.Lock()
	if d.large == nil {
		d.large = map[uint32]chan struct{}{}
	}
	turn := d.large[uid]
	if turn == nil {
		turn = make(chan struct{}, 1)
		d.large[uid] = turn
	}
	d.mu.Unlock()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// a job may bring a script of 64 MiB, which is a third more in JSON, and a large environment
const maxRequest = 128 << 20

// decode reads the body of a request.
func (a routes) decode(w http.ResponseWriter, r *http.Request, c Caller, into any) error {
	if large := r.ContentLength < 0 || r.ContentLength > smallBody; large && !c.admin() {
		done, err := a.admission.carry(r.Context(), c.UID)
		if err != nil {
			return err
		}
		defer done()
	}
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(bodyTime))
	defer control.SetReadDeadline(time.Time{}) // its end is watched for as long as the job lasts
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(into)
	if err == nil {
		// net/http watches for the caller's end only behind the body
		_, err = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, smallBody))
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &farm.Error{Kind: farm.Unavailable, Code: CodeSlowRequest,
			Message: fmt.Sprintf("the request did not come within %v", bodyTime),
			Hint:    "try again; a caller that is stopped sends nothing"}
	case err != nil:
		return badRequest("the request is not the JSON we expect: %v", err)
	}
	return nil
}

// mostBytes is what the requests of one user's jobs may take in the agent's memory: a few of the largest scripts, or
// thousands of usual ones. A job whose guest has it takes none.
const mostBytes = 256 << 20

// roomForLocked refuses a user who has too many jobs already, or too much in them.
func (a *Agent) roomForLocked(late *job, most int) error {
	c := late.caller
	if c.admin() {
		return nil
	}
	n, bytes := 0, requestBytes(late.request)
	late.weight.Store(bytes)
	for _, j := range a.live {
		if j.caller.UID == c.UID {
			n, bytes = n+1, bytes+j.weight.Load()
		}
	}
	if bytes > mostBytes && n > 0 {
		return &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeTooManyBytes,
			Message: fmt.Sprintf("your waiting jobs on this host have scripts and environments of %v with this one; "+
				"%v are kept for one user", farm.Bytes(bytes), farm.Bytes(mostBytes)),
			Hint: "wait until some have begun; or put large scripts into a directory that is bound, which sends " +
				"none"}
	}
	if n >= most {
		return &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeTooManyJobs,
			Message: fmt.Sprintf("you have %d jobs on this host already, those that wait included", n),
			Hint:    "wait until some have ended"}
	}
	return nil
}
