package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/grange-project/grange/api/fleet"
)

// foreignAddress: a host that was taken over names an address of its choice as the one where it gives images, for other
// hosts to connect there.
func foreignAddress(ctx context.Context, s *site) error {
	a, err := s.standalone(ctx)
	if err != nil {
		return err
	}
	defer a.close()
	token, err := a.grange(ctx, "host", "token", "create", "--cell", "general", "--count", "2")
	if err != nil {
		return err
	}
	var ids []tls.Certificate
	for _, name := range []string{"hostile", "honest"} {
		id, refused, err := a.enrol(ctx, token, name, name, false)
		if err != nil || refused != "" {
			return fmt.Errorf("host %s does not join: %s %w", name, refused, err)
		}
		ids = append(ids, id)
	}
	digest := "sha256:" + strings.Repeat("ab", 32)
	const own, foreign = "127.0.0.1:8446", "192.0.2.1:22"
	for _, address := range []string{own, foreign} {
		report := fleet.TransferReport{Address: address, Holds: []string{digest}}
		if _, err := a.transfers(ctx, ids[0], report); err != nil {
			return err
		}
		got, err := a.transfers(ctx, ids[1], fleet.TransferReport{Wants: []string{digest}})
		if err != nil {
			return err
		}
		told := len(got.Transfers) == 1 && len(got.Transfers[0].Peers) == 1 &&
			got.Transfers[0].Peers[0].Address == address
		if address == own && !told {
			return fmt.Errorf("the host's own address is not told: %+v", got)
		}
		if address == foreign && told {
			return breach("others are told to get images at %s", address)
		}
	}
	return nil
}

// transfers reports what a host holds and wants.
func (a *standalone) transfers(ctx context.Context, id tls.Certificate, r fleet.TransferReport) (
	got fleet.TransferAnswer, err error) {
	status, text, err := a.ask(ctx, a.client(id), http.MethodPost, fleet.RouteTransfers, r)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d: %s", status, text)
	}
	if err != nil {
		return got, err
	}
	return got, json.Unmarshal(text, &got)
}
