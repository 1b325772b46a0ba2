package placement

import "github.com/grange-project/grange/internal/farm"

// Fleet is all hosts with what they hold. It is kept by what follows, each in time that hardly grows with the number of hosts, and is not
// safe for several goroutines.
type Fleet struct{}

// NewFleet is a fleet of nothing.
func NewFleet() *Fleet { return &Fleet{} }

// SetCell tells of a cell, or of its change: packing, limits, overcommit.
func (f *Fleet) SetCell(c farm.Cell) {}

// RemoveCell forgets a cell. Its hosts and VMs stay, and take nothing new.
func (f *Fleet) RemoveCell(name string) {}

// Set tells of a host, or of its change. What it holds of VMs stays.
func (f *Fleet) Set(h Host) {}

// Remove forgets a host. Its VMs stay in the sums, and are there again when it is.
func (f *Fleet) Remove(id string) {}

// Claim finds the best host and takes the room there in one step; farm.NoCapacity when there is none.
func (f *Fleet) Claim(r Request) (Placed, error) { return Placed{}, nil }

// Restore enters a VM that has its place already, as after a start. It may exceed what the host has.
func (f *Fleet) Restore(p Placed) {}

// Release gives a VM's room back, and tells where that was. Releasing twice is no error.
func (f *Fleet) Release(vm string) (p Placed, ok bool) { return Placed{}, false }

// Why explains host by host without claiming.
func (f *Fleet) Why(r Request) Explanation { return Explanation{} }
