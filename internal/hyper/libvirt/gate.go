package libvirt

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// gate stops every process that is about to execute a program until it has been looked at. Between libvirt's fork and
// QEMU's first instruction there is no other moment at which QEMU's process is known, its security label and control
// groups are libvirt's last word, and none of its memory is taken.
//
// The kernel opens the gate when it is closed, and when the agent dies. Only starts of that program wait, and each for
// one look.
type gate struct {
	file *os.File // a fanotify group
	done chan struct{}
}

// errNoGate: the kernel has no permission events, or the agent may not have them.
var errNoGate = errors.New("fanotify has no events of executing programs here")

// openGate calls look with each process that is about to execute the program. This process must not execute the
// program itself meanwhile: Go holds on to a processor from fork to exec, and with as many forks at a time as
// GOMAXPROCS, or one beside the garbage collector, nobody is left to answer.
func openGate(program string, look func(pid int)) (*gate, error) {
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK,
		unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return nil, errors.Join(errNoGate, err)
	}
	g := &gate{os.NewFile(uintptr(fd), "fanotify"), make(chan struct{})}
	if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_OPEN_EXEC_PERM, unix.AT_FDCWD, program); err != nil {
		g.file.Close()
		return nil, errors.Join(errNoGate, err)
	}
	go g.keep(look)
	return g, nil
}

// keep answers every event: who is not answered waits.
func (g *gate) keep(look func(pid int)) {
	defer close(g.done)
	buffer := make([]byte, 4096)
	for {
		n, err := g.file.Read(buffer)
		if err != nil {
			g.file.Close() // whoever waits goes on
			return
		}
		for rest := buffer[:n]; len(rest) >= unix.FAN_EVENT_METADATA_LEN; {
			event := *(*unix.FanotifyEventMetadata)(unsafe.Pointer(&rest[0]))
			if event.Event_len < unix.FAN_EVENT_METADATA_LEN || int(event.Event_len) > len(rest) {
				break
			}
			rest = rest[event.Event_len:]
			if event.Fd < 0 { // an overflow of the queue
				continue
			}
			if event.Pid > 0 {
				look(int(event.Pid))
			}
			answer := unix.FanotifyResponse{Fd: event.Fd, Response: unix.FAN_ALLOW}
			g.file.Write((*[unsafe.Sizeof(answer)]byte)(unsafe.Pointer(&answer))[:])
			unix.Close(int(event.Fd))
		}
	}
}

func (g *gate) close() {
	if g == nil {
		return
	}
	g.file.Close()
	<-g.done
}

// holdAtExec has enter called with the QEMU of a machine that libvirt is about to make, before it is QEMU. nil where
// that is not possible.
func (f pidFiles) holdAtExec(e entry, enter func(pid int)) *gate {
	if enter == nil {
		return nil
	}
	file := f.file(e.Name)
	g, err := openGate(e.Emulator, func(pid int) {
		// As in locate: nobody else has that lock. It is taken before QEMU is executed.
		if holder, err := lockHolder(file); err == nil && holder == pid {
			enter(pid)
		}
	})
	if err != nil {
		return nil
	}
	return g
}
