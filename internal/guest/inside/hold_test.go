package inside

import (
	"io"
	"net"
	"testing"
	"time"
)

// TestHold: what comes while the guest holds is read when it lets go.
func TestHold(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	var h hold
	read := make(chan string)
	go func() {
		b := make([]byte, 10)
		for {
			n, err := heldPort{far, &h}.Read(b)
			if err != nil {
				close(read)
				return
			}
			read <- string(b[:n])
		}
	}()
	io.WriteString(near, "a")
	if got := <-read; got != "a" {
		t.Errorf("read %q", got)
	}
	h.begin()
	h.begin()
	io.WriteString(near, "b")
	select {
	case got := <-read:
		t.Errorf("read %q of a guest that holds", got)
	case <-time.After(100 * time.Millisecond):
	}
	h.end()
	h.end()
	if got := <-read; got != "b" {
		t.Errorf("read %q", got)
	}
}

// TestHoldLimit: a guest that is not told to lets go by itself.
func TestHoldLimit(t *testing.T) {
	t.Parallel()
	var h hold
	began := time.Now()
	h.begin()
	h.wait()
	if held := time.Since(began); held < holdLimit || held > 4*holdLimit {
		t.Errorf("held for %v", held)
	}
}
