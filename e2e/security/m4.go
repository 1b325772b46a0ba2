package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/grange-project/grange/api/fleet"
)

const (
	idleConnections = 2600
	mostIdle        = 2048 + 64 // that a server may keep, and a few of its own
	mostHeader      = 128 << 10 // bytes that it may read of whom it does not know
	mostWatches     = 128       // of one user
)

// idleCrowd: connections that show nobody make room for others, and a host goes on beside them.
func idleCrowd(ctx context.Context, s *site) error {
	a, err := s.standalone(ctx)
	if err != nil {
		return err
	}
	defer a.close()
	for range idleConnections {
		conn, err := net.DialTimeout("tcp", a.address, 10*time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
	}
	r, err := http.NewRequestWithContext(ctx, "POST", a.url()+fleet.RouteReport, strings.NewReader("{}"))
	if err != nil {
		return err
	}
	answer, err := a.client(a.host).Do(r)
	if err != nil {
		return breach("beside %d idle connections a host gets no answer: %v", idleConnections, err)
	}
	answer.Body.Close()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", a.pid))
	if err != nil {
		return err
	}
	if len(files) > mostIdle {
		return breach("the server keeps %d files open, of %d connections that show nobody", len(files), idleConnections)
	}
	return nil
}

// longHeader: of who shows nothing, the server reads little.
func longHeader(ctx context.Context, s *site) error {
	a, err := s.standalone(ctx)
	if err != nil {
		return err
	}
	defer a.close()
	conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: a.roots}}).DialContext(ctx, "tcp", a.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	answered := make(chan error, 1)
	go func() {
		_, err := bufio.NewReader(conn).ReadByte() // an answer, or the end
		answered <- err
	}()
	sent, _ := io.WriteString(conn, "GET /v1/vms HTTP/1.1\r\nHost: x\r\nX-Long: ")
	for piece := strings.Repeat("a", 4<<10); sent < mostHeader; sent += len(piece) {
		if _, err := io.WriteString(conn, piece); err != nil {
			return nil // cut off
		}
	}
	select {
	case <-answered:
		return nil
	case <-time.After(3 * time.Second):
		return breach("the server has read %d bytes of a header, and waits for more", sent)
	}
}

// manyWatches: a user has a bounded number of them.
func manyWatches(ctx context.Context, s *site) error {
	a, err := s.standalone(ctx)
	if err != nil {
		return err
	}
	defer a.close()
	token, err := a.grange(ctx, "token", "create", "--user", "ann")
	if err != nil {
		return err
	}
	client := a.client()
	for n := range mostWatches + 20 {
		r, err := http.NewRequestWithContext(ctx, "GET", a.url()+"/v1/changes", nil)
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(token))
		answer, err := client.Do(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		switch answer.StatusCode {
		case http.StatusOK:
		case http.StatusTooManyRequests:
			return nil
		default:
			return errors.New("watch " + fmt.Sprint(n) + ": " + answer.Status)
		}
	}
	return breach("one user has %d watches", mostWatches+20)
}
