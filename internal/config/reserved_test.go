package config

import (
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

func TestReservedMemory(t *testing.T) {
	for text, want := range map[string]map[farm.Bytes]farm.Bytes{
		"": {3 * farm.GiB: 384 * farm.MiB, 8 * farm.GiB: farm.GiB,
			512 * farm.GiB: farm.GiB, 0: 0},
		"reserved_memory = 'auto'": {3 * farm.GiB: 384 * farm.MiB},
		"reserved_memory = '1G'":   {3 * farm.GiB: farm.GiB},
		"reserved_memory = '0'":    {3 * farm.GiB: 0},
	} {
		c, err := ParseAgent([]byte(text), "test")
		if err != nil {
			t.Fatal(err)
		}
		for memory, kept := range want {
			if got := c.ReservedOf(memory); got != kept {
				t.Errorf("%q: %v of %v are kept, want %v", text, got, memory, kept)
			}
		}
	}
}
