package inside

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// port is a virtio-serial port. Its host side comes and goes; Read waits for the next one.
type port struct{ file *os.File }

// openPort finds a port by the name the host gave it. Without udev there is no /dev/virtio-ports, so sysfs is asked.
func openPort(name string) (*port, error) {
	const timeout = 30 * time.Second // a service may start before its devices are there
	for deadline := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		path, err := findPort(name)
		if err == nil {
			// Non-blocking matters: a blocking write spins in the kernel until the host has taken the buffer.
			f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
			if err == nil {
				return &port{f}, nil
			}
			if !errors.Is(err, os.ErrNotExist) {
				return nil, err
			}
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("no virtio-serial port %s after %v: was this VM made by grange?", name, timeout)
		}
	}
}

func findPort(name string) (string, error) {
	const class = "/sys/class/virtio-ports/"
	ports, err := os.ReadDir(class)
	if err != nil {
		return "", err
	}
	for _, p := range ports {
		text, err := os.ReadFile(class + p.Name() + "/name")
		if err == nil && strings.TrimSpace(string(text)) == name {
			return "/dev/" + p.Name(), nil
		}
	}
	return "", os.ErrNotExist
}

// Read waits for bytes. The kernel says "end of file" while no host is connected.
func (p *port) Read(b []byte) (int, error) {
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		n, err := p.file.Read(b)
		if n > 0 || err != nil && err != io.EOF {
			return n, err
		}
		time.Sleep(wait)
	}
}

// Write waits while no host is connected.
func (p *port) Write(b []byte) (int, error) { return p.file.Write(b) }

// Close ends reads and writes, and lets the port be opened again.
func (p *port) Close() error { return p.file.Close() }
