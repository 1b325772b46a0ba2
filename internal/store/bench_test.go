package store_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// BenchmarkPlace is the placer's work on the store: VMs that get a place, many in one commit.
func BenchmarkPlace(b *testing.B) {
	for _, group := range []int{1, 16, 128} {
		b.Run(fmt.Sprint(group), func(b *testing.B) {
			s, err := store.Open(b.Context(), filepath.Join(b.TempDir(), "farm.db"))
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			if _, err := s.Update(b.Context(), func(tx *store.Tx) error {
				for i := range group {
					if err := tx.InsertVM(placed(i, "")); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				b.Fatal(err)
			}
			n := 0
			for b.Loop() {
				n++
				if _, err := s.Update(b.Context(), func(tx *store.Tx) error {
					for i := range group {
						if err := tx.SetVMPlace(placed(i, fmt.Sprint(n))); err != nil {
							return err
						}
					}
					return tx.Fence(0)
				}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*group), "µs/VM")
		})
	}
}

func placed(i int, host string) farm.VM {
	v := farm.VM{ID: fmt.Sprint("vm-", i), Project: "p", Name: fmt.Sprint(i), Host: host,
		Shape: farm.Shape{CPUs: 8, Memory: 16 * farm.GiB}}
	for c := range 8 {
		v.Plan.VCPUs = append(v.Plan.VCPUs, farm.NewCPUSet(c, c+64))
	}
	v.Plan.Cells = []farm.GuestCell{{VCPUs: farm.CPURange(0, 8), Memory: 16 * farm.GiB, PageSize: farm.GiB}}
	return v
}
