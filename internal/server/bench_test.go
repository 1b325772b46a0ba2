package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// BenchmarkCreate is requests of many people at once, each for one VM with an address, in a project with a quota that
// has so many VMs already. They are not placed: that is `make bench-place`.
func BenchmarkCreate(b *testing.B) {
	for _, there := range []int{1000, 50_000} {
		b.Run(fmt.Sprint(there), func(b *testing.B) {
			s, err := newBusy(b, there)
			if err != nil {
				b.Fatal(err)
			}
			var n atomic.Int64
			b.SetParallelism(16)
			b.ResetTimer()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					r := CreateVM{Project: "alice", Name: fmt.Sprint("new-", n.Add(1)), Image: "micro", Shape: "small",
						Network: "wide"}
					if _, err := s.VMs.Create(context.Background(), ann, r); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// newBusy is a server of a farm that has VMs.
func newBusy(b *testing.B, there int) (*Server, error) {
	st, err := store.Open(b.Context(), filepath.Join(b.TempDir(), "farm.db"))
	if err != nil {
		return nil, err
	}
	b.Cleanup(func() { st.Close() })
	net := farm.FleetNetwork{Name: "wide", Bridge: "br0", Domain: "example.org"}
	for n := range byte(4) {
		net.Addresses = append(net.Addresses,
			farm.AddressPool{First: netip.AddrFrom4([4]byte{10, n, 0, 0}),
				Last: netip.AddrFrom4([4]byte{10, n, 255, 255}), Bits: 8})
	}
	_, err = st.Update(b.Context(), func(tx *store.Tx) error {
		err := errors.Join(tx.PutNetwork(net), tx.PutCell(farm.Cell{Name: "east", Default: true}.WithDefaults()),
			tx.PutProject(farm.Project{Name: "alice", Quota: farm.Quota{VMs: 1e6}}),
			tx.PutShape(farm.Shape{Name: "small", CPUs: 2, Memory: 2 * farm.GiB, Network: farm.NetworkNone}),
			tx.PutGrant(farm.Grant{User: "ann", Role: farm.RoleMember, Project: "alice"}))
		for n := range there {
			name := fmt.Sprintf("old-%d", n)
			a := netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
			err = errors.Join(err, tx.InsertVM(farm.VM{ID: fmt.Sprintf("%08x-%s", uint32(n)*2654435761, name),
				Name: name, Project: "alice", Shape: farm.Shape{CPUs: 2}, Network: net.Name,
				Lease: farm.Lease{Network: net.Name, Address: netip.PrefixFrom(a, 8), Hostname: name + ".example.org",
					MAC: farm.MAC(a)}}))
		}
		return err
	})
	return New(Options{Store: st, Log: slog.New(slog.DiscardHandler), URL: "https://server.example.org"}), err
}
