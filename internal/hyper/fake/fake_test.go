package fake_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/hyper/fake"
	"github.com/grange-project/grange/internal/hyper/hypertest"
)

func TestContract(t *testing.T) {
	const ends, polite, refused, fills, unwatched, reboots, panics = "ends", "polite", "refused", "fills", "unwatched", "reboots", "panics"
	host := fake.NewHost()
	t.Cleanup(host.Close)
	host.Guest = func(ctx context.Context, m hyper.Machine) {
		if m.Boot.Cmdline == fills {
			host.NoSpace(m.ID)
		}
		if m.Boot.Cmdline == panics {
			host.End(m.ID, "its kernel panicked")
		}
		if m.Boot.Cmdline == unwatched {
			host.Watchdog(m.ID)
		}
		if m.Boot.Cmdline == reboots {
			host.Reboot(m.ID)
		}
		if m.Boot.Cmdline != ends {
			<-ctx.Done()
		}
	}
	host.Deaf = func(m hyper.Machine) bool { return m.Boot.Cmdline != polite }
	host.Refuse = func(m hyper.Machine) error {
		if m.Boot.Cmdline == refused {
			return errors.New("refused")
		}
		return nil
	}
	var last atomic.Int64
	machine := func(cmdline string) func(*testing.T) hyper.Machine {
		return func(*testing.T) hyper.Machine {
			id := fmt.Sprintf("%08x-0000-4000-8000-000000000000", last.Add(1))
			return hyper.Machine{
				ID: id, Name: "grange-" + id[:8],
				Plan: farm.Plan{
					VCPUs:    []farm.CPUSet{farm.NewCPUSet(1), farm.NewCPUSet(0)},
					Emulator: farm.NewCPUSet(0),
					Guest:    farm.GuestTopology{Sockets: 1, Cores: 2, Threads: 1},
					Cells:    []farm.GuestCell{{VCPUs: farm.NewCPUSet(0, 1), Memory: farm.GiB}},
				},
				Boot:    hyper.Boot{Kernel: "/kernel", Cmdline: cmdline},
				Reboots: cmdline == reboots, Watchdog: cmdline == unwatched,
			}
		}
	}
	hypertest.Run(t, hypertest.Driver{
		Open:    func(*testing.T) hyper.Hypervisor { return host.Open() },
		Machine: machine(""), Ending: machine(ends), Polite: machine(polite), Refused: machine(refused),
		Filling:   machine(fills),
		Unwatched: machine(unwatched), Rebooting: machine(reboots), Panicking: machine(panics),
		Kill: func(*testing.T) func() {
			host.Kill()
			return host.Restart
		},
		Stick: func(_ *testing.T, m hyper.Machine) func() { return host.Stick(m.ID, m.Name) },
		Other: func(t *testing.T) (hyper.Hypervisor, func(hyper.Machine) hyper.Machine) {
			other := fake.NewHost()
			t.Cleanup(other.Close)
			other.Guest = host.Guest
			return other.Open(), func(m hyper.Machine) hyper.Machine {
				m.Plan.VCPUs = []farm.CPUSet{m.Plan.VCPUs[1], m.Plan.VCPUs[0]}
				return m
			}
		},
	})
}
