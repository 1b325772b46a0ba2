package inside

import (
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

// reaper collects every ended child. As process 1 we inherit orphans, so one place waits for all, and keeps the ends of
// those that were started through it.
type reaper struct {
	mu      sync.Mutex
	started map[int]chan ending
}

type ending struct {
	status unix.WaitStatus
	usage  unix.Rusage
}

func newReaper() *reaper {
	r := &reaper{started: map[int]chan ending{}}
	died := make(chan os.Signal, 1)
	signal.Notify(died, unix.SIGCHLD)
	go func() {
		for range died {
			r.collect()
		}
	}()
	return r
}

// start runs fork, which starts a process, and returns where its end will be told.
func (r *reaper) start(fork func() (pid int, err error)) (int, <-chan ending, error) {
	r.mu.Lock() // the process may end before fork returns: collect waits for us
	defer r.mu.Unlock()
	pid, err := fork()
	if err != nil {
		return 0, nil, err
	}
	end := make(chan ending, 1)
	r.started[pid] = end
	return pid, end, nil
}

func (r *reaper) collect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var e ending
		pid, err := unix.Wait4(-1, &e.status, unix.WNOHANG, &e.usage)
		if err == unix.EINTR {
			continue
		}
		if pid <= 0 {
			return
		}
		if end, ok := r.started[pid]; ok {
			end <- e
			delete(r.started, pid)
		}
	}
}
