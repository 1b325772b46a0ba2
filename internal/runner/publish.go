package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/guest"
)

// Published is a TCP port of the VM that the user of this process may connect to.
type Published struct {
	Port uint16 // of the VM's own loopback
	Here uint16 // of this host; 0: the same, or another where that is taken
	To   string // whom to let through as well, by a name of the site's; "": nobody
}

// codePublished is of our own word among the agent's events.
const codePublished = "published"

// PublishedVariable tells a job where its ports are on the host, as PORT=ADDRESS:PORT with spaces between.
const PublishedVariable = "GRANGE_PUBLISHED"

// PublishSyntax is what ParsePublished reads.
const PublishSyntax = "PORT[:HERE][@NAME]"

// ParsePublished reads flags.
func ParsePublished(texts []string) (all []Published, err error) {
	for _, text := range texts {
		ports, to, named := strings.Cut(text, "@")
		port, here, given := strings.Cut(ports, ":")
		p := Published{To: to}
		if p.Port, err = parsePort(port); err == nil && given {
			p.Here, err = parsePort(here)
		}
		if err == nil && named && (to == "" || strings.ContainsAny(to, ":@/")) {
			err = fmt.Errorf("%q is not a name", to)
		}
		if err != nil {
			return nil, usage("--publish "+PublishSyntax, "--publish %q: %v", text, err)
		}
		all = append(all, p)
	}
	if len(all) > guest.MaxPublished {
		return nil, usage("", "%d ports to publish; at most %d", len(all), guest.MaxPublished)
	}
	return all, nil
}

func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a port", text)
	}
	return uint16(n), nil
}

// publish takes the ports of this host before a VM is asked for: one that is taken is no reason to end a VM. Whom the
// site lets users publish to, its agent says.
func (j *Job) publish(ctx context.Context) error {
	var all doors
	for _, p := range j.opts.Publish {
		d, err := j.door(ctx, p)
		if err != nil {
			all.close()
			return err
		}
		all = append(all, d)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.doors = all
	if len(all) > 0 {
		j.request.Env = append(j.request.Env, PublishedVariable+"="+all.String())
	}
	if j.left {
		all.close()
	}
	return nil
}

func (j *Job) door(ctx context.Context, p Published) (door, error) {
	d := door{port: p.Port}
	if p.To != "" {
		to, err := untilAnswered(ctx, j, func() (api.PublishTo, error) { return j.client.PublishTo(ctx, p.To) })
		if err == nil {
			d.to, err = audienceOf(to)
		}
		if err != nil {
			return d, err
		}
	}
	at, err := d.to.address()
	if err == nil {
		d.Listener, err = listenAt(at, p)
	}
	if err != nil {
		return d, usage("leave HERE out, or choose another", "--publish %d:%d: %v", p.Port, cmp.Or(p.Here, p.Port), err)
	}
	return d, nil
}

// door is where a port of the VM is on this host.
type door struct {
	net.Listener
	port uint16
	to   audience
}

type doors []door

func (d doors) String() string {
	var all []string
	for _, one := range d {
		all = append(all, fmt.Sprintf("%d=%s", one.port, one.Addr()))
	}
	return strings.Join(all, " ")
}

func (d doors) close() {
	for _, one := range d {
		one.Close()
	}
}

func listenAt(address string, p Published) (net.Listener, error) {
	at := func(port uint16) (net.Listener, error) {
		return net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(int(port))))
	}
	if p.Here != 0 {
		return at(p.Here)
	}
	l, err := at(p.Port)
	if errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EACCES) {
		return at(0)
	}
	return l, err
}

// open lets connections through, over a stream of the session. It returns the ports for the VM's end, which connects to
// these and to nothing else.
func (d doors) open(session *guest.Session, use use, show func(api.JobEvent)) (ports []uint16) {
	if len(d) == 0 {
		return nil
	}
	relay := guest.NewRelayGuest(publishing{session.Stream(guest.StreamPublish)})
	go relay.Serve()
	for _, one := range d {
		ports = append(ports, one.port)
		show(api.JobEvent{Event: api.EventWarning, Code: codePublished,
			Message: fmt.Sprintf("port %d of the VM is %s here, %s", one.port, one.Addr(), one.to)})
		for range acceptors {
			go one.accept(func(c *net.TCPConn) { relay.Carry(used{c, use}, one.port) })
		}
	}
	return ports
}

// acceptors is how many goroutines accept connections of a port, so that strangers who connect and hang up without end
// are refused faster than they come.
const acceptors = 4

// accept has the connections carried that the audience may make.
func (d door) accept(carry func(*net.TCPConn)) {
	users := newPeerUsers(d.Addr())
	defer users.close()
	for {
		conn, err := d.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // as too many open files
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if hungUp(conn) || !d.to.admits(conn, users) {
			conn.Close()
			continue
		}
		go carry(conn.(*net.TCPConn))
	}
}

// hungUp reports whether the other end of a connection has ended it, or its half of it.
func hungUp(conn net.Conn) bool {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return true
	}
	var info *unix.TCPInfo
	control := raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	return errors.Join(control, err) != nil || info.State != established
}

// publishing is the stream as a relay's device. It ends with its session.
type publishing struct{ io.ReadWriter }

func (publishing) SetWriteDeadline(time.Time) error { return nil }

// used is a connection by which the user is active.
type used struct {
	*net.TCPConn
	use use
}

func (u used) Read(p []byte) (int, error) {
	n, err := u.TCPConn.Read(p)
	if n > 0 {
		u.use.noted()
	}
	return n, err
}
