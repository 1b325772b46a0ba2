package config

import (
	"math"

	"github.com/grange-project/grange/internal/farm"
)

// AutoReserve has as much memory kept for the host as a host of its size needs.
const AutoReserve farm.Bytes = math.MaxUint64

// Of a small host's memory 1G would be a third, and the default shape fit none of its nodes.
const (
	mostReserved  = farm.GiB
	reservedShare = 8 // one in so many
)

// ReservedOf is how much memory is kept for a host that has so much.
func (a Agent) ReservedOf(memory farm.Bytes) farm.Bytes {
	if a.ReservedMemory != AutoReserve {
		return a.ReservedMemory
	}
	return min(mostReserved, memory/reservedShare)
}

func reservedMemory(text string) (farm.Bytes, error) {
	if text == "auto" {
		return AutoReserve, nil
	}
	return farm.ParseBytes(text)
}
