package config

import (
	"math"

	"github.com/grange-project/grange/internal/farm"
)

// AutoReserve has as much memory kept for the host as a host of its size needs.
const AutoReserve farm.Bytes = math.MaxUint64

// ReservedOf is how much memory is kept for a host that has so much.
func (a Agent) ReservedOf(memory farm.Bytes) farm.Bytes {
	if a.ReservedMemory != AutoReserve {
		return a.ReservedMemory
	}
	return farm.AutoReserved(memory)
}

func reservedMemory(text string) (farm.Bytes, error) {
	if text == "auto" {
		return AutoReserve, nil
	}
	return farm.ParseBytes(text)
}
