package farmlab

import (
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Listen listens on the farm's network, where VMs with an address on it reach it.
func (f *Farm) Listen() (l net.Listener, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for ever: the thread ends with the goroutine, and its network namespace with it
		var hub *os.File
		if hub, err = os.Open(f.Network()); err != nil {
			return
		}
		defer hub.Close()
		if err = unix.Setns(int(hub.Fd()), unix.CLONE_NEWNET); err == nil {
			l, err = net.Listen("tcp4", hubAddress+":0")
		}
	}()
	<-done
	return l, err
}
