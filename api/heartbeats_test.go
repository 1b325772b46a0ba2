package api

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestHeartbeats counts what comes in a quarter of a minute.
func TestHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		c := &Client{&http.Client{Transport: &http.Transport{DialContext: func(context.Context, string,
			string) (net.Conn, error) {
			return here, nil
		}}}}
		came := make(chan time.Duration, 100)
		began := time.Now()
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/jobs/a b/beats" {
				t.Errorf("path %q", r.URL.Path)
			}
			var b [16]byte
			for {
				n, err := r.Body.Read(b[:])
				if err != nil {
					return
				}
				if n > 0 {
					came <- time.Since(began)
				}
			}
		})}
		one := &single{conns: make(chan net.Conn, 1)}
		one.conns <- there
		go server.Serve(one)
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second+HeartbeatInterval/2)
		defer cancel()
		if err := c.Heartbeats(ctx, "a b"); err != nil {
			t.Error(err)
		}
		for i := range 16 {
			select {
			case at := <-came:
				if want := time.Duration(i) * HeartbeatInterval; at < want || at > want+HeartbeatInterval/2 {
					t.Errorf("heartbeat %d after %v", i, at)
				}
			default:
				t.Fatalf("%d heartbeats", i)
			}
		}
		server.Close()
		c.http.CloseIdleConnections()
	})
}

// single is a listener with one connection.
type single struct{ conns chan net.Conn }

func (s *single) Accept() (net.Conn, error) {
	if conn, ok := <-s.conns; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}
func (s *single) Close() error   { close(s.conns); return nil }
func (s *single) Addr() net.Addr { return &net.UnixAddr{} }

func TestHeartbeatsWithoutAgent(t *testing.T) {
	if err := NewClient(filepath.Join(t.TempDir(), "none")).Heartbeats(t.Context(), "x"); !errors.Is(err, ErrNoAgent) {
		t.Errorf("%v is not that no agent answers", err)
	}
}
