package inside

import (
	"fmt"
	"net"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/guest"
)

// services are those of the host, each behind a port of this VM's own loopback.
type services struct {
	mu    sync.Mutex
	relay *guest.RelayGuest // nil: there are none yet
	ports map[uint16]bool   // that are listened on
}

// offer listens for services that are not here yet: a VM may have had an earlier job. bare says that nobody else has
// set up the loopback.
func (s *services) offer(all []guest.Service, bare bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, service := range all {
		if s.ports[service.Port] {
			continue
		}
		if err := s.open(bare); err != nil {
			return fmt.Errorf("services of the host: %w", err)
		}
		if err := s.listen(service.Port); err != nil {
			return fmt.Errorf("service %s of the host: %w", service.Name, err)
		}
	}
	return nil
}

// open opens the port to the host, once.
func (s *services) open(bare bool) error {
	if s.relay != nil {
		return nil
	}
	if bare {
		if err := loopbackUp(); err != nil {
			return err
		}
	}
	p, err := openPort(guest.ServicePort)
	if err != nil {
		return err
	}
	relay := guest.NewRelayGuest(p.file)
	go func() { logf("service port: %v", relay.Serve()) }()
	s.relay, s.ports = relay, map[uint16]bool{}
	return nil
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return interfaceUp(fd, "lo")
}

// listen listens on both loopback addresses; a kernel may be without IPv6.
func (s *services) listen(port uint16) error {
	four, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	go s.accept(four, port)
	if six, err := net.Listen("tcp6", net.JoinHostPort("::1", strconv.Itoa(int(port)))); err == nil {
		go s.accept(six, port)
	}
	s.ports[port] = true
	return nil
}

func (s *services) accept(l net.Listener, port uint16) {
	for {
		conn, err := l.Accept()
		if err != nil {
			logf("port %d: %v", port, err)
			return
		}
		go s.relay.Carry(conn, port)
	}
}
