package runner

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Of sock_diag(7), inet_diag.h.
const (
	byFamily     = 20 // SOCK_DIAG_BY_FAMILY
	noCookie     = 0xffffffff
	requestSize  = 56
	answerSize   = 72
	established  = 1 // TCP_ESTABLISHED
	kernelAnswer = time.Second
)

// socketInfo is what the kernel says of a TCP socket.
type socketInfo struct {
	state uint8
	uid   uint32
	inode uint32 // 0: no process has it any more
}

// errNoSocket: there is no socket with these two ends.
var errNoSocket = errors.New("no such socket")

// diagnosis asks the kernel of single sockets. It does not read the list of all of them.
type diagnosis struct {
	fd  int
	seq uint32
}

func newDiagnosis() (*diagnosis, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, err
	}
	timeout := unix.NsecToTimeval(kernelAnswer.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &diagnosis{fd: fd}, nil
}

func (d *diagnosis) close() { unix.Close(d.fd) }

// socket returns the socket that has the end local and is connected to remote, or listens at local. Error: errNoSocket,
// those of the kernel.
func (d *diagnosis) socket(local, remote netip.AddrPort) (socketInfo, error) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} { // a socket of IPv6 may speak IPv4
		info, err := d.ask(family, local, remote)
		if !errors.Is(err, errNoSocket) {
			return info, err
		}
	}
	return socketInfo{}, errNoSocket
}

func (d *diagnosis) ask(family uint8, local, remote netip.AddrPort) (socketInfo, error) {
	d.seq++
	if err := unix.Sendto(d.fd, diagRequest(family, d.seq, local, remote), 0, &unix.SockaddrNetlink{
		Family: unix.AF_NETLINK}); err != nil {
		return socketInfo{}, err
	}
	b := make([]byte, 8192)
	for {
		n, from, err := unix.Recvfrom(d.fd, b, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return socketInfo{}, err
		}
		if kernel, ok := from.(*unix.SockaddrNetlink); !ok || kernel.Pid != 0 {
			continue
		}
		if info, mine, err := readDiag(b[:n], d.seq); mine {
			return info, err
		}
	}
}

// diagRequest is a message that asks for one TCP socket.
func diagRequest(family uint8, seq uint32, local, remote netip.AddrPort) []byte {
	b := make([]byte, unix.SizeofNlMsghdr, unix.SizeofNlMsghdr+requestSize)
	native, network := binary.NativeEndian, binary.BigEndian
	native.PutUint32(b[0:], unix.SizeofNlMsghdr+requestSize)
	native.PutUint16(b[4:], byFamily)
	native.PutUint16(b[6:], unix.NLM_F_REQUEST)
	native.PutUint32(b[8:], seq)
	b = append(b, family, unix.IPPROTO_TCP, 0, 0)
	b = native.AppendUint32(b, 0xffffffff) // all states
	b = network.AppendUint16(b, local.Port())
	b = network.AppendUint16(b, remote.Port())
	for _, a := range []netip.Addr{local.Addr(), remote.Addr()} {
		sixteen := a.As16() // of IPv4, the mapped address
		if family == unix.AF_INET {
			four := a.Unmap().As4()
			sixteen = [16]byte{}
			copy(sixteen[:], four[:])
		}
		b = append(b, sixteen[:]...)
	}
	b = native.AppendUint32(b, 0) // any device
	b = native.AppendUint32(b, noCookie)
	return native.AppendUint32(b, noCookie)
}

// readDiag reads the kernel's answer to a request; mine tells whether it is to that one.
func readDiag(b []byte, seq uint32) (info socketInfo, mine bool, err error) {
	native := binary.NativeEndian
	if len(b) < unix.SizeofNlMsghdr || native.Uint32(b[8:]) != seq {
		return info, false, nil
	}
	body := b[unix.SizeofNlMsghdr:]
	switch kind := native.Uint16(b[4:]); {
	case kind == unix.NLMSG_ERROR && len(body) >= 4:
		errno := unix.Errno(-int32(native.Uint32(body)))
		if errno == unix.ENOENT {
			return info, true, errNoSocket
		}
		return info, true, errno
	case kind == byFamily && len(body) >= answerSize:
		return socketInfo{state: body[1], uid: native.Uint32(body[64:]), inode: native.Uint32(body[68:])}, true, nil
	}
	return info, true, errors.New("the kernel's answer cannot be read")
}
