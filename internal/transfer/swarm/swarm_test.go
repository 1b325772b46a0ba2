package swarm_test

import (
	"testing"
	"time"

	"github.com/grange-project/grange/internal/transfer/swarm/swarmtest"
)

const gigabit = 125e6

// TestManyHosts: hosts that begin at once have it in little more time than one, and the source sends little more than
// one copy, whatever some of them do. `make bench-images` simulates 400.
func TestManyHosts(t *testing.T) {
	for name, change := range map[string]func(*swarmtest.Run){
		"at once":      func(*swarmtest.Run) {},
		"over a while": func(r *swarmtest.Run) { r.Spread = 30 * time.Second },
		"few hosts":    func(r *swarmtest.Run) { r.Hosts = 20 },
		"fast source":  func(r *swarmtest.Run) { r.SourceLink = 10 * gigabit },
		"10 that hang": func(r *swarmtest.Run) { r.Broken = 10 },
		"10 that lie":  func(r *swarmtest.Run) { r.Liars = 10 },
	} {
		t.Run(name, func(t *testing.T) {
			r := swarmtest.Run{Hosts: 100, Pieces: 512, PieceBytes: 4 << 20, Link: gigabit, SourceLink: gigabit,
				Known: 40}
			change(&r)
			got := r.Do()
			t.Logf("%+v", got)
			slow := r.SourceLink / gigabit * 3.5
			if got.Finished != r.Hosts-r.Broken-r.Liars || got.Ratio > slow || got.SourceCopies > 2 {
				t.Errorf("%+v", got)
			}
		})
	}
}
