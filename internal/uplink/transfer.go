package uplink

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"sync"

	"github.com/grange-project/grange/api/fleet"
)

// Server is the way of a host to its servers for what is no part of the link: images. Requests go to the one that
// answered last, or else the next. The identity is read anew each time, as that of Peers is.
type Server struct {
	keep keeper
	urls []string

	mu          sync.Mutex
	certificate string // of the caller
	caller      *caller
}

// NewServer reads the identity that Join keeps in a directory. Servers of the configuration go before those that the
// server named.
func NewServer(dir *os.Root, urls []string) *Server {
	return &Server{keep: keeper{dir, IdentityFile}, urls: urls}
}

func (s *Server) present() (*caller, error) {
	id, err := s.keep.read()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if key := id.Host + id.Certificate + id.CA; s.caller == nil || s.certificate != key {
		c, err := newCaller(id, s.urls)
		if err != nil {
			return nil, err
		}
		if s.caller != nil {
			s.caller.close()
		}
		s.caller, s.certificate = c, key
	}
	return s.caller, nil
}

// Do sends a request to a route of a server. The caller reads what comes back, and closes it.
func (s *Server) Do(ctx context.Context, method, route string, body []byte) (*http.Response, error) {
	c, err := s.present()
	if err != nil {
		return nil, err
	}
	var text any
	if body != nil {
		text = json.RawMessage(body)
	}
	server := c.server()
	response, err := c.send(ctx, method, server+route, text, nil)
	if err != nil && ctx.Err() == nil {
		c.next(server)
	}
	return response, err
}

// Transfers reports to a server what this host holds and wants of its images, and returns where that is to be had.
func (s *Server) Transfers(ctx context.Context, r fleet.TransferReport) (a fleet.TransferAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	body, err := json.Marshal(r)
	if err != nil { // plain data
		panic(err)
	}
	response, err := s.Do(ctx, http.MethodPost, fleet.RouteTransfers, body)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	if err := problemOf(response); err != nil {
		return a, err
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&a); err != nil {
		return a, garbled(response.Request.URL.Host, err)
	}
	return a, nil
}
