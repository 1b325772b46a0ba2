package inside

import (
	"net"
	"testing"
)

// TestServicePortTaken: a service whose port somebody has is no service, and the job is told.
func TestServicePortTaken(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := services{ports: map[uint16]bool{}}
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	if err := s.listen(port); err == nil || s.ports[port] {
		t.Errorf("port %d is somebody's: %v", port, err)
	}
	if err := s.offer(nil, true); err != nil {
		t.Errorf("no services: %v", err)
	}
}
