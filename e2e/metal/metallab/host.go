package metallab

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

// Host is one that runs.
type Host struct {
	Name string
	Dir  string

	lab      *Lab
	emulator string // the suite of its QEMU
	lan      LAN
	port     int // of ssh, on 127.0.0.1
	monitor  *monitor
	ended    chan struct{} // closed when QEMU has been waited for
	uses     []*os.File    // of snapshots that its disks lie over, see use

	mu  sync.Mutex
	ssh *ssh.Client

	panicked atomic.Bool
	silent   atomic.Bool // it answered nothing on its connection, which was ended
	leaving  atomic.Bool // QEMU is ended by us
}

// Reboots counts the hosts that went down and came up again.
var Reboots atomic.Int64

// closeTime bounds how long a host takes to end a command that nobody waits for any more.
const closeTime = 15 * time.Second

// bootTime bounds a boot and a shutdown: a minute on two cores that do nothing else.
const bootTime = 20 * time.Minute

func (h *Host) path(name string) string { return filepath.Join(h.Dir, name) }
func (h *Host) socket() string          { return h.path("qmp.sock") }

// Port is the one of ssh, on 127.0.0.1.
func (h *Host) Port() int { return h.port }

// Run runs a shell script as root and returns its output. The error of one that failed holds what it wrote to standard
// error.
func (h *Host) Run(ctx context.Context, script string) (string, error) {
	var out bytes.Buffer
	err := h.Command(ctx, script, nil, &out)
	return strings.TrimSpace(out.String()), err
}

// Command is Run with standard input and output of the caller's.
func (h *Host) Command(ctx context.Context, script string, stdin io.Reader, stdout io.Writer) error {
	client, err := h.client(ctx)
	if err != nil {
		return err
	}
	session, err := client.NewSession()
	if err != nil {
		h.hangUp()
		return h.failed(ctx, script, err, "")
	}
	defer session.Close()
	var done atomic.Bool
	defer done.Store(true)
	defer context.AfterFunc(ctx, func() {
		session.Close()
		// The host is to agree to that. One that hangs never does.
		time.AfterFunc(closeTime, func() {
			if !done.Load() {
				client.Close()
			}
		})
	})()
	var complaint bytes.Buffer
	session.Stdin, session.Stdout, session.Stderr = stdin, stdout, &complaint
	if err := session.Run(script); err != nil {
		return h.failed(ctx, script, err, complaint.String())
	}
	return nil
}

// failed is the error of a script, with what the host has to do with it.
func (h *Host) failed(ctx context.Context, script string, err error, complaint string) error {
	var exit *ssh.ExitError
	switch {
	case h.panicked.Load():
		err = fmt.Errorf("%w: %s", ErrPanicked, h.panicLine())
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.As(err, &exit):
	case h.silent.Load():
		err = fmt.Errorf("%w: its console: %s", ErrSilent, h.serial())
	case h.wasReset(time.Second):
		err = fmt.Errorf("%w: its console: %s", ErrReset, h.serial())
	default: // the connection broke
		err = fmt.Errorf("%w; the host's console: %s", err, h.serial())
	}
	return fmt.Errorf("%s: %s: %w: %s", h.Name, abridge(script), err, strings.TrimSpace(complaint))
}

// serial is the end of the host's console.
func (h *Host) serial() []byte {
	text, _ := os.ReadFile(h.path("serial.log"))
	return text[max(0, len(text)-2000):]
}

// abridge returns the first line of a script.
func abridge(script string) string {
	line, rest, _ := strings.Cut(strings.TrimSpace(script), "\n")
	if rest != "" {
		line += " ..."
	}
	return line
}

// Put writes a file on the host.
func (h *Host) Put(ctx context.Context, name string, content io.Reader) error {
	return h.Command(ctx, "cat >'"+name+"'", content, nil)
}

// Copy copies files of this machine into a directory of the host, with their names and modes.
func (h *Host) Copy(ctx context.Context, dir string, files ...string) error {
	for _, file := range files {
		if err := h.copy(ctx, filepath.Join(dir, filepath.Base(file)), file); err != nil {
			return err
		}
	}
	return nil
}

func (h *Host) copy(ctx context.Context, name, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := h.Put(ctx, name, f); err != nil {
		return err
	}
	_, err = h.Run(ctx, fmt.Sprintf("chmod %o '%s'", info.Mode().Perm(), name))
	return err
}

// client is the connection to the host, made anew where there is none.
func (h *Host) client(ctx context.Context) (*ssh.Client, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ssh != nil {
		return h.ssh, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bootTime, fmt.Errorf("%s: no ssh within %v", h.Name, bootTime))
	defer cancel()
	err := until(ctx, 200*time.Millisecond, func() (err error) {
		select {
		case <-h.ended:
			return final{errors.New("QEMU has ended")}
		default:
		}
		if h.panicked.Load() {
			return final{fmt.Errorf("%w: %s", ErrPanicked, h.panicLine())}
		}
		if h.silent.Load() {
			return final{ErrSilent}
		}
		h.ssh, err = h.dial(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w; its console: %s", err, h.serial())
	}
	return h.ssh, nil
}

func (h *Host) dial(ctx context.Context) (*ssh.Client, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp4", "127.0.0.1:"+strconv.Itoa(h.port))
	if err != nil {
		return nil, err
	}
	// QEMU accepts for a host that does not listen yet.
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	c, channels, requests, err := ssh.NewClientConn(conn, h.Name, &ssh.ClientConfig{User: "root",
		Auth: []ssh.AuthMethod{ssh.PublicKeys(h.lab.key)}, HostKeyCallback: ssh.InsecureIgnoreHostKey()})
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	conn.SetDeadline(time.Time{})
	return ssh.NewClient(c, channels, requests), nil
}

func (h *Host) connected() *ssh.Client {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ssh
}

func (h *Host) hangUp() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ssh != nil {
		h.ssh.Close()
		h.ssh = nil
	}
}

const bootID = "cat /proc/sys/kernel/random/boot_id"

// Reboot shuts the host down in order, and returns when it has started all units again.
func (h *Host) Reboot(ctx context.Context) error {
	before, err := h.Run(ctx, bootID)
	if err != nil {
		return err
	}
	if err := h.monitor.onReboot("reset"); err != nil {
		return err
	}
	h.Run(ctx, "systemctl --no-block reboot")
	ctx, cancel := context.WithTimeoutCause(ctx, bootTime, fmt.Errorf("%s: not up again within %v", h.Name, bootTime))
	defer cancel()
	err = until(ctx, time.Second, func() error {
		short, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		now, err := h.Run(short, bootID)
		if err != nil {
			h.hangUp() // which it has done, too
			return err
		}
		if now == before {
			return errors.New("still shutting down")
		}
		return nil
	})
	if err != nil {
		return err
	}
	Reboots.Add(1)
	if err := h.monitor.onReboot("shutdown"); err != nil {
		return err
	}
	return h.settled(ctx)
}

// settled waits until systemd has started what it has to. Units that failed are the tests' business.
func (h *Host) settled(ctx context.Context) error {
	// udev, which loads KVM, is waited for by no unit.
	state, err := h.Run(ctx, "systemctl is-system-running --wait || true; udevadm settle --timeout 300 >&2")
	if err == nil && state != "running" && state != "degraded" {
		err = fmt.Errorf("%s is %s", h.Name, cmp.Or(state, "in no state"))
	}
	return err
}

// PowerLoss ends the host as a cut of power does. Its disks stay, for Boot.
func (h *Host) PowerLoss() {
	h.leaving.Store(true)
	h.hangUp()
	if h.monitor != nil {
		h.monitor.quit()
		<-h.ended
		h.monitor = nil
	}
}

// Boot starts a host that PowerLoss ended, from its disks and its boot loader; with more devices, as QEMU's arguments.
func (h *Host) Boot(ctx context.Context, devices ...string) error {
	if err := h.qemu(ctx, memory{}, false, devices...); err != nil {
		return err
	}
	Reboots.Add(1)
	return h.settled(ctx)
}

// Close ends the host and removes what it has written.
func (h *Host) Close() error {
	h.PowerLoss()
	for _, f := range h.uses {
		f.Close()
	}
	if h.Dir == "" {
		return nil
	}
	return os.RemoveAll(h.Dir)
}
