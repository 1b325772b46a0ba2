package server

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// wide is a network of two pools with a hundred addresses each, of which VMs hold those at the places that taken names.
func (l *lab) wide(taken func(place int) bool) farm.FleetNetwork {
	l.t.Helper()
	net := farm.FleetNetwork{Name: "wide", Bridge: "br0"}
	for n := range 2 {
		net.Addresses = append(net.Addresses, farm.AddressPool{First: netip.AddrFrom4([4]byte{10, 1, byte(n), 1}),
			Last: netip.AddrFrom4([4]byte{10, 1, byte(n), 100}), Bits: 16})
	}
	l.update(func(tx *store.Tx) error {
		err := errors.Join(tx.PutNetwork(net), tx.PutProject(farm.Project{Name: "alice"}))
		for place := range 200 {
			if taken(place) {
				err = errors.Join(err, l.lease(tx, net, place))
			}
		}
		return err
	})
	return net
}

// lease makes a VM that holds the address at a place.
func (l *lab) lease(tx *store.Tx, net farm.FleetNetwork, place int) error {
	name := fmt.Sprintf("old-%03d", place)
	a := addressAt(net.Addresses, place)
	return tx.InsertVM(farm.VM{ID: name, Name: name, Project: "alice", Network: net.Name,
		Lease: farm.Lease{Network: net.Name, Address: a, Hostname: name, MAC: farm.MAC(a.Addr())}})
}

// leased creates VMs on the wide network, and returns their addresses.
func (l *lab) leased(name string, count int) (addresses []string) {
	l.t.Helper()
	r := web(name)
	r.Network, r.Count = "wide", count
	for _, v := range l.create(ann, r) {
		addresses = append(addresses, v.Lease.Address.String())
	}
	return addresses
}

func TestLeasesGoOnBehindTheLast(t *testing.T) {
	l := newLab(t)
	net := l.wide(func(place int) bool { return place < 150 && place != 90 })
	for n, c := range []struct {
		before func(*store.Tx) error
		want   []string
	}{
		{want: []string{"10.1.0.91/16"}}, // beyond the first probes
		{want: []string{"10.1.1.51/16"}}, // in the second pool
		{want: []string{"10.1.1.52/16", "10.1.1.53/16"}},
		{before: func(tx *store.Tx) error { return tx.DeleteVM("old-005") }, want: []string{"10.1.1.54/16"}},
		{before: func(tx *store.Tx) (err error) {
			for place := 154; place < 200; place++ {
				err = errors.Join(err, l.lease(tx, net, place))
			}
			return err
		}, want: []string{"10.1.0.6/16"}}, // round again
	} {
		if c.before != nil {
			l.update(c.before)
		}
		got := l.leased(fmt.Sprintf("new-%d", n), len(c.want))
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%d: leased %v, not %v", n, got, c.want)
		}
	}
	r := web("none")
	r.Network = "wide"
	if _, err := l.VMs.Create(t.Context(), ann, r); code(err) != CodeNoLease {
		t.Errorf("all are taken: %v", err)
	}
	l.update(func(tx *store.Tx) error { return tx.DeleteVM("old-199") })
	l.cursors = cursors{} // as after a restart
	if got := l.leased("last", 1); got[0] != "10.1.1.100/16" {
		t.Errorf("the last that is free is %v", got)
	}
}

// TestLeasesWithinARequest: what was given to one VM of a request is not given to the next, whether all that are taken
// were read or not.
func TestLeasesWithinARequest(t *testing.T) {
	l := newLab(t)
	l.wide(func(place int) bool { return place < 70 })
	seen := map[string]bool{}
	for n, count := range []int{30, 30, 70} {
		for _, a := range l.leased(fmt.Sprintf("new-%d", n), count) {
			if seen[a] {
				t.Errorf("%s twice", a)
			}
			seen[a] = true
		}
		l.cursors = cursors{}
	}
}
