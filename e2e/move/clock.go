package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/grange-project/grange/e2e/lab"
)

// session is a connection to a process of the guest that prints the guest's time for each line. The same one lasts
// through all moves.
type session struct {
	net.Conn
	out *bufio.Reader
}

// tellTimes has the guest connect to us.
func (t *trial) tellTimes(ctx context.Context) error {
	l, err := t.f.Listen()
	if err != nil {
		return err
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	address := strings.Replace(l.Addr().String(), ":", "/", 1)
	if _, err := t.guest(ctx, "setsid bash -c 'exec <>/dev/tcp/"+address+" >&0; "+lab.TellTimes+
		"' 2>/tmp/clock &"); err != nil {
		return err
	}
	const patience = time.Minute
	defer time.AfterFunc(patience, func() { l.Close() }).Stop()
	conn, err := l.Accept()
	if err != nil {
		out, _ := t.guest(ctx, "cat /tmp/clock")
		return fmt.Errorf("the guest does not connect: %w: %s", err, out)
	}
	// Its time is not asked yet: without KVM a kernel reads its first time to the second.
	t.clock = session{conn, bufio.NewReader(conn)}
	return nil
}

// clockRight fails unless the guest's clock is right.
func (t *trial) clockRight() error {
	const patience = time.Minute
	asked := time.Now()
	err := t.clock.SetDeadline(asked.Add(patience))
	_, asking := fmt.Fprintln(t.clock)
	line, reading := t.clock.out.ReadString('\n')
	came := time.Now()
	if err := errors.Join(err, asking, reading); err != nil {
		return fmt.Errorf("the guest's process does not answer any more: %w", err)
	}
	off, err := lab.ClockOff(asked, came, line)
	fmt.Printf("# the guest's clock is off by %v at least, asked for %v\n", off, came.Sub(asked))
	t.r.Clocks++
	if t.r.ClockOff = max(t.r.ClockOff, off.Seconds()); err == nil && off > lab.ClockNear {
		err = fmt.Errorf("the guest's clock is off by %v", off)
	}
	return err
}
