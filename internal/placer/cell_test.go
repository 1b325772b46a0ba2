package placer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/placement"
	"github.com/grange-project/grange/internal/store"
)

// cellNames are those that come and go in these tests.
var cellNames = []string{"east", "west", "north"}

// somethingElse changes a cell, a network or a host, so that others have labels, networks, room or none.
func somethingElse(tx *store.Tx, r *rand.Rand) error {
	switch r.IntN(6) {
	case 0:
		c := farm.Cell{Name: cellNames[r.IntN(3)], Closed: r.IntN(5) == 0}.WithDefaults()
		if r.IntN(2) == 0 {
			c.Labels = map[string]string{"rack": fmt.Sprint(r.IntN(2)), "gpu": ""}
		}
		if r.IntN(3) == 0 {
			c.Overcommit = 2
		}
		if r.IntN(3) == 0 {
			c.PerHost = 1
		}
		return tx.PutCell(c)
	case 1:
		if err := tx.DeleteCell(cellNames[r.IntN(3)]); !missing(err) {
			return err
		}
		return nil
	case 2:
		n := farm.FleetNetwork{Name: []string{"lan", "inner"}[r.IntN(2)], Bridge: fmt.Sprint("br", r.IntN(2))}
		if r.IntN(2) == 0 {
			n.Hosts = []string{fmt.Sprintf("h[0-%d]", r.IntN(6))}
		}
		n.Isolate = r.IntN(4) == 0
		return tx.PutNetwork(n)
	case 3:
		if err := tx.DeleteNetwork("inner"); !missing(err) {
			return err
		}
		return nil
	case 4:
		h, err := tx.HostNamed(fmt.Sprint("h", r.IntN(6)))
		if err != nil {
			return err
		}
		h.Cell, h.Closed, h.Labels = cellNames[r.IntN(3)], r.IntN(
			4) == 0, map[string]string{"tier": fmt.Sprint(r.IntN(2))}
		return tx.SetHost(h)
	}
	h, err := tx.HostNamed(fmt.Sprint("h", r.IntN(6)))
	if err != nil {
		return err
	}
	h.Facts.Capability = 3 + r.IntN(2)
	h.Facts.Networks, h.Facts.Kind = []string{fmt.Sprint("br", r.IntN(2))}, []string{"cern", "grid"}[r.IntN(2)]
	return tx.SetHostFacts(h.ID, h.Facts)
}

// asks are what placement may be asked where labels and networks count.
func asks() (all []placement.Request) {
	for _, network := range []string{"", "lan", "inner"} {
		for _, needs := range [][]string{nil, {"rack=1"}, {"!gpu"}, {"tier=0", "kind=cern"}, {"cell=west"}} {
			all = append(all, placement.Request{VM: "asked", Project: "alice",
				Shape: farm.Shape{CPUs: 4, Memory: 28 * farm.GiB}, Cells: cellNames, Network: network, Needs: needs})
		}
	}
	return all
}

// A mirror that follows changes of cells and networks, without reading hosts, knows what one knows that reads
// everything.
func TestMirrorFollowsCells(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			l := newLab(t)
			r := rand.New(rand.NewPCG(seed, 7))
			var hosts []farm.Host
			for i := range 6 {
				hosts = append(hosts, l.machine(fmt.Sprint("h", i), cellNames[i%3]))
			}
			for i := range 3 {
				v := farm.VM{Name: fmt.Sprint("v", i), Host: hosts[i].ID, Cell: hosts[i].Cell,
					Shape: sized(2, 20*farm.GiB)}
				l.create(v)
			}
			m, claimed := l.Mirror, 0
			for range 80 {
				for range 1 + r.IntN(3) {
					l.update(func(tx *store.Tx) error { return somethingElse(tx, r) })
				}
				fresh := l.mirror(func(string, time.Time) bool { return false })
				if err := m.follow(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := fresh.load(t.Context()); err != nil {
					t.Fatal(err)
				}
				claimed += alike(t, m, fresh)
			}
			if all := 80 * len(asks()); claimed < all/20 || claimed > all*19/20 {
				t.Errorf("%d of %d are claimed: the test proves little", claimed, all)
			}
		})
	}
}

// alike holds two mirrors against each other: what hosts answer, and how many places are claimed.
func alike(t *testing.T, m, fresh *Mirror) (claimed int) {
	t.Helper()
	if !slices.EqualFunc(m.cells, fresh.cells, func(a, b farm.Cell) bool { return cmp.Equal(a, b) }) ||
		m.revision != fresh.revision {
		t.Fatalf("%+v\n%+v", m.cells, fresh.cells)
	}
	for _, r := range asks() {
		a, err := m.fleet.Why(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := fresh.fleet.Why(r)
		if d := cmp.Diff(b.Each, a.Each); err != nil || d != "" {
			t.Fatalf("%s %v: %v %s", r.Network, r.Needs, err, d)
		}
		p, err := m.fleet.Claim(r)
		q, other := fresh.fleet.Claim(r)
		m.fleet.Release(r.VM)
		fresh.fleet.Release(r.VM)
		fits := slices.ContainsFunc(a.Each, func(x placement.Answer) bool { return x.Fits && x.Host == p.Host })
		if (err == nil) != (other == nil) || fits != (err == nil) || err == nil && p.Cell != q.Cell {
			t.Fatalf("%s %v: %+v %v, not %+v %v", r.Network, r.Needs, p, err, q, other)
		}
		if err == nil {
			claimed++
		}
	}
	return claimed
}

// When a cell is closed or opened, or a network gets names, no host is read.
func TestCellIsClosedAtOnce(t *testing.T) {
	l := newLab(t)
	l.machine("e1", "east")
	p := l.placing()
	l.settle(p)
	note := p.hosts["id-e1"]
	note.kind = "nobody read it"
	p.hosts["id-e1"] = note
	cell := func(closed bool) {
		l.update(func(tx *store.Tx) error {
			c, err := tx.Cell("east")
			c.Closed = closed
			return errors.Join(err, tx.PutCell(c))
		})
	}
	cell(true)
	l.update(func(tx *store.Tx) error {
		return tx.PutNetwork(farm.FleetNetwork{Name: "inner", Bridge: "br1", Closed: true,
			Names: []string{"wn-1", "wn-2", "wn-3"}})
	})
	l.settle(p)
	if _, err := p.fleet.Claim(asks()[0]); err == nil {
		t.Error("claimed in a closed cell")
	}
	cell(false)
	v := l.create(farm.VM{Name: "a", Shape: small})
	l.settle(p)
	if got := l.must(v.ID); got.Host == "" || p.hosts["id-e1"].kind != note.kind {
		t.Errorf("%+v, %+v", got, p.hosts["id-e1"])
	}
}
