package placement

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

// half is a fleet that is half full, of hosts with 32 and 256 threads, and its VMs. Every second host has a second
// image.
func half(b *testing.B, hosts int) (f *Fleet, vms []string, draw func(vm string) Request) {
	r := rand.New(rand.NewPCG(9, uint64(hosts)))
	f = NewFleet()
	f.SetCell(farm.Cell{Name: "c"})
	threads := 0
	for i := range hosts {
		t := topologytest.CERN2630v3()
		if i%8 == 0 {
			t = topologytest.EPYC256()
		}
		threads += t.Online.Len()
		f.Set(Host{ID: fmt.Sprint(i), Name: fmt.Sprint("h", i), Cell: "c", Topology: t,
			Images: []string{"i0", "i1"}[:1+i/3%2], Networks: []string{"n0"}})
	}
	draw = func(vm string) Request {
		cpus := one(r, 1, 2, 4, 4, 8, 8, 16, 32)
		return Request{VM: vm, Project: "p", Cells: []string{"c"}, Image: []string{"i0", "i1"}[cpus/4%2], Network: "n0",
			Shape: farm.Shape{CPUs: cpus, Memory: farm.Bytes(cpus*one(r, 1, 2, 3)) * farm.GiB,
				Network: farm.NetworkNone}}
	}
	for threads /= 2; threads > 0; {
		q := draw(fmt.Sprint("v", len(vms)))
		if _, err := f.Claim(q); err != nil {
			b.Fatal(err)
		}
		vms = append(vms, q.VM)
		threads -= q.Shape.CPUs
	}
	return f, vms, draw
}

// BenchmarkClaim is a VM that comes and another that goes.
func BenchmarkClaim(b *testing.B) {
	for _, hosts := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprint(hosts), func(b *testing.B) {
			f, vms, draw := half(b, hosts)
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				q := draw(fmt.Sprint("w", i))
				if _, err := f.Claim(q); err != nil {
					b.Fatal(err)
				}
				at := i * 7919 % len(vms)
				f.Release(vms[at])
				vms[at] = q.VM
				i++
			}
		})
	}
}

// BenchmarkNewClass is the first request of its kind: every host is looked at once.
func BenchmarkNewClass(b *testing.B) {
	f, _, _ := half(b, 10000)
	i := 0
	for b.Loop() {
		i++
		p, err := f.Claim(Request{VM: "v", Project: "p", Cells: []string{"c"},
			Shape: farm.Shape{CPUs: 3, Memory: farm.Bytes(1024+i%4096) * farm.MiB, Network: farm.NetworkNone}})
		if err != nil {
			b.Fatal(err, p)
		}
	}
}

// BenchmarkWhy is an explanation with its search for changes.
func BenchmarkWhy(b *testing.B) {
	f, _, _ := half(b, 10000)
	for b.Loop() {
		e, err := f.Why(Request{VM: "v", Project: "p", Cells: []string{"c"},
			Shape: farm.Shape{CPUs: 300, Memory: 300 * farm.GiB, Network: farm.NetworkNone}})
		if err != nil || e.Fits > 0 {
			b.Fatal(err, e.Fits)
		}
	}
}
