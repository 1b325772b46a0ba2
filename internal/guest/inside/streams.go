package inside

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/pty"
)

// streams joins the job's standard files with the session.
type streams struct {
	session  *guest.Session
	terminal *os.File // our end of the pseudo-terminal, if there is one
	child    []*os.File
	ours     map[byte]*os.File
	copies   sync.WaitGroup
}

func startStreams(s *guest.Session, j *guest.Job) (*streams, error) {
	t := &streams{session: s, ours: map[byte]*os.File{}}
	if j.Terminal != nil {
		return t, t.openTerminal(*j.Terminal)
	}
	ids := []byte{guest.StreamStdin, guest.StreamStdout, guest.StreamStderr}
	if j.OneOutput {
		ids = ids[:2]
	}
	for _, id := range ids {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		if id == guest.StreamStdin {
			t.child, t.ours[id] = append(t.child, r), w
		} else {
			t.child, t.ours[id] = append(t.child, w), r
		}
	}
	go t.feed(t.ours[guest.StreamStdin])
	t.collect(guest.StreamStdout, t.ours[guest.StreamStdout])
	if j.OneOutput {
		s.Stream(guest.StreamStderr).CloseWrite()
	} else {
		t.collect(guest.StreamStderr, t.ours[guest.StreamStderr])
	}
	return t, nil
}

// feed ends by itself when the job does not read any more.
func (t *streams) feed(to *os.File) {
	io.Copy(to, t.session.Stream(guest.StreamStdin))
	if to != t.terminal {
		to.Close()
	}
}

func (t *streams) collect(id byte, from *os.File) {
	t.copies.Go(func() {
		io.Copy(t.session.Stream(id), from)
		t.session.Stream(id).CloseWrite()
	})
}

// drain returns when the job's output is in the session. Processes that outlive the job and cannot be killed do not
// hold it.
func (t *streams) drain() {
	done := make(chan struct{})
	go func() { t.copies.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(drainTime):
		for id, f := range t.ours {
			if id != guest.StreamStdin {
				f.SetReadDeadline(time.Now())
			}
		}
		<-done
	}
}

// drainTime is for processes in a full image that left the job's cgroup; there are none in the micro image.
const drainTime = 5 * time.Second

// breakOutput lets the job's next write fail, as when the reader of a pipe has gone.
func (t *streams) breakOutput(id byte) {
	if f := t.ours[id]; f != nil && id != guest.StreamStdin {
		f.Close()
	}
}

func (t *streams) childFDs() []uintptr {
	fds := make([]uintptr, 3)
	for i := range fds {
		fds[i] = t.child[min(i, len(t.child)-1)].Fd()
	}
	return fds
}

func (t *streams) closeChildEnds() {
	for _, f := range t.child {
		f.Close()
	}
}

func (t *streams) openTerminal(size guest.Size) error {
	ours, child, err := pty.Open()
	if err != nil {
		return err
	}
	t.terminal, t.child = ours, []*os.File{child}
	t.resize(size)
	t.session.Stream(guest.StreamStderr).CloseWrite()
	go t.feed(ours)
	t.collect(guest.StreamStdout, ours)
	return nil
}

func (t *streams) resize(size guest.Size) {
	if t.terminal != nil {
		pty.Resize(t.terminal, size.Rows, size.Cols)
	}
}
