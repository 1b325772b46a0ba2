package shell

import (
	"context"
	"errors"
	"net"
	"time"
)

// ask asks a session, in bounded time.
func ask(path string, m message) (Session, error) {
	c, err := dial(context.Background(), path)
	if err != nil {
		return Session{}, err
	}
	defer c.conn.Close()
	c.conn.SetReadDeadline(time.Now().Add(askLimit))
	return c.open(m)
}

// askLimit is for a process of one's own on this host to answer.
const askLimit = 5 * time.Second

func dial(ctx context.Context, path string) (*channel, error) {
	conn, err := (&net.Dialer{Timeout: askLimit}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return newChannel(conn.(*net.UnixConn)), nil
}

// open sends a client's first message and returns the session.
func (c *channel) open(m message) (Session, error) {
	if err := c.send(m); err != nil {
		return Session{}, err
	}
	answer, err := c.receive()
	if err != nil {
		return Session{}, err
	}
	if answer.Session == nil {
		return Session{}, errors.New("the session does not answer as expected")
	}
	return *answer.Session, nil
}
