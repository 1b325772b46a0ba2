package machine

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// console keeps the end of what a VM wrote to its serial console, and lets people type into it.
type console struct {
	path string
	log  *consoleLog // nil: nothing is kept on disk

	writing sync.Mutex // one writer at a time
	mu      sync.Mutex
	conn    net.Conn // nil before the VM runs, and after its end
	tail    []byte
	written int // bytes in all, so that a follower knows where it is
	ended   bool
	changed chan struct{}
}

const consoleTail = 32 << 10

func newConsole(path string) *console { return &console{path: path, changed: make(chan struct{})} }

// run reads until the VM ends or ctx does. It must always read: QEMU waits for a reader that is connected and slow.
func (c *console) run(ctx context.Context) {
	defer c.update(func() { c.ended = true })
	defer c.log.close()
	conn, err := net.DialTimeout("unix", c.path, 10*time.Second)
	if err != nil {
		return
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	c.update(func() { c.conn = conn })
	defer c.update(func() { c.conn = nil })
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		c.log.write(buf[:n])
		c.update(func() {
			c.tail = append(c.tail, buf[:n]...)
			if extra := len(c.tail) - consoleTail; extra > 0 {
				c.tail = append(c.tail[:0], c.tail[extra:]...)
			}
			c.written += n
		})
		if err != nil {
			return
		}
	}
}

func (c *console) update(change func()) {
	c.mu.Lock()
	change()
	close(c.changed)
	c.changed = make(chan struct{})
	c.mu.Unlock()
}

// typingTimeout is how long a VM may take to read what is typed. One whose CPUs are stopped reads nothing.
const typingTimeout = 5 * time.Second

// Write types p into the console. What several people type is mixed, as on a terminal with several keyboards.
func (c *console) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	if conn == nil {
		return 0, errNotConnected
	}
	if err := conn.SetWriteDeadline(time.Now().Add(typingTimeout)); err != nil {
		return 0, err
	}
	return conn.Write(p)
}

// awaitEnd waits a little for the rest of what a VM that has gone wrote.
func (c *console) awaitEnd(timeout time.Duration) {
	limit := time.After(timeout)
	for {
		c.mu.Lock()
		ended, changed := c.ended, c.changed
		c.mu.Unlock()
		if ended {
			return
		}
		select {
		case <-changed:
		case <-limit:
			return
		}
	}
}

// lastLines is the end of the console, for an error message.
func (c *console) lastLines(n int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := strings.TrimSpace(strings.ReplaceAll(string(c.tail), "\r", ""))
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// Follow writes what is kept and what comes, until the VM ends, ctx ends or w fails.
func (c *console) Follow(ctx context.Context, w io.Writer, flush func(), once bool) error {
	for at := 0; ; {
		c.mu.Lock()
		from := max(0, len(c.tail)-(c.written-at))
		fresh, ended, changed := append([]byte(nil), c.tail[from:]...), c.ended, c.changed
		at = c.written
		c.mu.Unlock()
		if len(fresh) > 0 { // a pipe would hand nothing on, too
			if _, err := w.Write(fresh); err != nil {
				return err
			}
		}
		flush()
		if ended || once {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// consoleStream is one person at a console. Reads go on from what is kept of it to its end.
type consoleStream struct {
	*io.PipeReader
	console *console
	cancel  context.CancelFunc
	over    chan struct{} // closed when nothing reads for it any more
}

// Open joins the console. The log, and whoever reads it, see all that this one sees.
func (c *console) Open() io.ReadWriteCloser {
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	s := &consoleStream{out, c, cancel, make(chan struct{})}
	go func() {
		defer close(s.over)
		in.CloseWithError(c.Follow(ctx, in, func() {}, false))
	}()
	return s
}

func (s *consoleStream) Write(p []byte) (int, error) { return s.console.Write(p) }

// Close leaves the console, which goes on.
func (s *consoleStream) Close() error {
	s.cancel()
	err := s.PipeReader.Close()
	<-s.over
	return err
}
