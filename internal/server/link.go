package server

import (
	"context"
	"crypto/x509"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// JoinOrder asks for a join token.
type JoinOrder struct {
	Cell   string
	Name   string // of the host; "": any
	Labels map[string]string
	Valid  time.Duration // 0: an hour
	Count  int           // hosts that may enrol with it; 0: one
}

// CreateJoinToken makes a join token. The text is told once.
func (s *Server) CreateJoinToken(ctx context.Context, who farm.Identity, o JoinOrder) (k farm.JoinToken, text string, err error) {
	return farm.JoinToken{}, "", errLater
}

// JoinTokens are those that were made, newest last.
func (s *Server) JoinTokens(ctx context.Context, who farm.Identity) ([]farm.JoinToken, error) {
	return nil, errLater
}

// HostAt is which host a connection speaks for, by the certificates it showed, the host's first. Nobody else may ask what a host asks.
func (s *Server) HostAt(ctx context.Context, shown []*x509.Certificate) (farm.Identity, error) {
	return farm.Identity{}, errLater
}

// Enrol trades a join token for a host's identity. shown are the certificates of the connection, for hosts that have one of the site's.
func (s *Server) Enrol(ctx context.Context, shown []*x509.Certificate, r fleet.EnrolRequest) (fleet.EnrolAnswer, error) {
	return fleet.EnrolAnswer{}, errLater
}

// Renew issues the next certificate of a host.
func (s *Server) Renew(ctx context.Context, who farm.Identity, r fleet.RenewRequest) (fleet.EnrolAnswer, error) {
	return fleet.EnrolAnswer{}, errLater
}

// Report takes over what a host says.
func (s *Server) Report(ctx context.Context, who farm.Identity, r fleet.Report) (fleet.ReportAnswer, error) {
	return fleet.ReportAnswer{}, errLater
}

// Wanted waits until a host's wanted list is another one than it has, by its revision and the instance that asks. changed is false when
// nothing changed for as long as a request may last.
func (s *Server) Wanted(ctx context.Context, who farm.Identity, instance string, after int64) (list fleet.WantedList, changed bool, err error) {
	return fleet.WantedList{}, false, errLater
}
