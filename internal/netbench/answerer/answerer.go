// Package answerer is the side of a network check that answers: it takes bytes and sends some, and returns datagrams to
// their sender. It is a part of grange-guest, too.
package answerer

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grange-project/grange/internal/cputicks"
)

// Name is the first argument of grange-guest that stands for this.
const Name = "network-answer"

// The first line of each connection is Greeting, the key, and what is wanted.
const (
	Greeting = "grange-network-1"
	Control  = "control" // is answered by Ready; then each line by a line, and all ends with the connection
	Send     = "send"    // and milliseconds: zeros come for as long
	Receive  = "receive" // what comes is dropped; after it comes a line with the number of bytes
)

// What may be asked on a control connection.
const (
	AskCPU   = "cpu"   // the ticks that the CPUs have worked
	AskCount = "count" // the datagrams that have come since the last such question
)

// Ready is the answer to Control where no other check is under way; Busy is it where there is one.
const (
	Ready = "ready"
	Busy  = "busy"
)

// Datagram is how long each datagram is: as long as those of ping. It begins with the key, and goes back as it came.
const Datagram = 64

// KeySize is how long a key is, as text.
const KeySize = 32

// Longest is the longest that a transfer takes.
const Longest = time.Minute

// idle is how long a connection may say nothing.
const idle = 2 * time.Minute

// Anybody on the network may connect: introduction is how long the first line may take, and atOnce how many are heard.
const (
	introduction = 5 * time.Second
	atOnce       = 64
)

// Block is how much is written at once.
const Block = 128 << 10

// Answerer answers one check.
type Answerer struct {
	Key    string
	tcp    net.Listener
	taken  atomic.Bool // a check is under way, or was
	came   atomic.Int64
	finish context.CancelFunc
}

// Listen opens an address for TCP. Port 0 stands for any that is free; a check has the same one for UDP.
func Listen(address string) (*Answerer, error) {
	tcp, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	key := make([]byte, KeySize/2)
	rand.Read(key)
	return &Answerer{Key: hex.EncodeToString(key), tcp: tcp}, nil
}

// Address is where it listens.
func (a *Answerer) Address() string { return a.tcp.Addr().String() }

// Run answers until a check has ended, or ctx has. It returns an error where there was no check.
func (a *Answerer) Run(ctx context.Context) error {
	ctx, a.finish = context.WithCancel(ctx)
	defer a.finish()
	var work sync.WaitGroup
	work.Go(func() { a.connections(ctx) })
	<-ctx.Done()
	err := a.tcp.Close()
	work.Wait()
	if !a.taken.Load() {
		return errors.Join(errors.New("nobody asked for a check"), err)
	}
	return err
}

// datagrams returns those that have the key to whoever sent them: no more goes out than came in.
func (a *Answerer) datagrams(udp net.PacketConn) {
	var b [Datagram]byte
	for {
		n, from, err := udp.ReadFrom(b[:])
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && n == Datagram && a.knows(string(b[:KeySize])) {
			a.came.Add(1)
			_, _ = udp.WriteTo(b[:], from) // what is not sent is lost, as others are
		}
	}
}

func (a *Answerer) knows(key string) bool {
	return subtle.ConstantTimeCompare([]byte(key), []byte(a.Key)) == 1
}

// connections serves them until the listener is closed.
func (a *Answerer) connections(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	room := make(chan struct{}, atOnce)
	for {
		conn, err := a.tcp.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptor is free: others' may be soon
			time.Sleep(100 * time.Millisecond)
			continue
		}
		select {
		case room <- struct{}{}:
		default:
			conn.Close()
			continue
		}
		work.Go(func() {
			defer func() { <-room }()
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			_ = a.serve(conn) // who asks sees that it ended
		})
	}
}

func (a *Answerer) serve(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(introduction)); err != nil {
		return err
	}
	in := bufio.NewReaderSize(io.LimitReader(conn, 256), 256) // nobody without the key is listened to for longer
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	words := strings.Fields(line)
	if len(words) < 3 || words[0] != Greeting || !a.knows(words[1]) {
		return errors.New("no key")
	}
	if err := conn.SetDeadline(time.Now().Add(idle)); err != nil {
		return err
	}
	switch words[2] {
	case Control:
		return a.control(conn)
	case Send:
		ms, _ := strconv.Atoi(words[len(words)-1])
		return send(conn, min(time.Duration(ms)*time.Millisecond, Longest))
	case Receive:
		n, err := io.Copy(io.Discard, conn)
		if err == nil {
			_, err = fmt.Fprintln(conn, n+int64(in.Buffered()))
		}
		return err
	}
	return errors.New("unknown word")
}

// control answers questions. The check ends with its connection.
func (a *Answerer) control(conn net.Conn) error {
	if !a.taken.CompareAndSwap(false, true) {
		_, err := fmt.Fprintln(conn, Busy)
		return err
	}
	defer a.finish()
	// on the address that was asked: an answer from another one of this machine's would be taken for lost
	udp, err := net.ListenPacket("udp", conn.LocalAddr().String())
	if err != nil {
		return err
	}
	defer udp.Close()
	go a.datagrams(udp)
	if _, err := fmt.Fprintln(conn, Ready); err != nil {
		return err
	}
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		var answer int64
		switch lines.Text() {
		case AskCPU:
			answer = cputicks.Busy()
		case AskCount:
			answer = a.came.Swap(0)
		default:
			return errors.New("unknown question")
		}
		if err := conn.SetDeadline(time.Now().Add(idle)); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(conn, answer); err != nil {
			return err
		}
	}
	return nil
}

func send(conn net.Conn, d time.Duration) error {
	zeros := make([]byte, Block)
	for began := time.Now(); time.Since(began) < d; {
		if _, err := conn.Write(zeros); err != nil {
			return err
		}
	}
	return nil
}

// Main answers one check at an address and returns an exit status.
func Main(args []string) int {
	address := ":0"
	if len(args) > 0 {
		address = args[0]
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	a, err := Listen(address)
	if err == nil {
		fmt.Println(a.Call())
		err = a.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "grange-guest:", err)
		return 1
	}
	return 0
}

// Call is what to type on the other side.
func (a *Answerer) Call() string {
	host, port, _ := net.SplitHostPort(a.Address())
	if ip := net.ParseIP(host); ip.IsUnspecified() {
		host = "ADDRESS"
	}
	return fmt.Sprintf("grange network check %s --key %s", net.JoinHostPort(host, port), a.Key)
}
