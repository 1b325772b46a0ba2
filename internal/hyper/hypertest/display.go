package hypertest

import (
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// display: a machine's display is served where it was said, from its start on.
func (s *suite) display() {
	m := s.d.Machine(s.T)
	m.Display = displayOf(s.T, m.UID)
	_, err := s.h.Start(s.ctx, m)
	s.must(err)
	defer func() { s.must(s.h.Stop(s.ctx, m.ID)) }()
	s.must(s.h.Resume(s.ctx, m.ID))
	conn, err := net.Dial("unix", m.Display)
	s.must(err)
	defer conn.Close()
	s.must(conn.SetReadDeadline(time.Now().Add(timeout)))
	words := make([]byte, len("RFB 003.008\n"))
	if _, err := io.ReadFull(conn, words); err != nil || string(words) != "RFB 003.008\n" {
		s.Errorf("the display says %q, %v", words, err)
	}
}

// displayOf is a socket for the display of a machine, in a directory of its user's.
func displayOf(t *testing.T, uid uint32) string {
	return filepath.Join(filepath.Dir(Sockets(t, uid).Memory), "vnc")
}
