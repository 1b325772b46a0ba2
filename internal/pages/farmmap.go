package pages

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"hash/fnv"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/server"
)

// mapData is what the map draws: a list for each thing, with one element a host, in the order of cells and names.
// Strings that are equal are numbers, into a list of them.
type mapData struct {
	Cells  []string `json:"cells"`
	Kinds  []string `json:"kinds"`
	States []string `json:"states"`

	Name     []string `json:"name"`
	Cell     []int    `json:"cell"`
	Kind     []int    `json:"kind"`
	State    []int    `json:"state"`
	CPUs     []int    `json:"cpus"`
	Used     []int    `json:"used"`
	Memory   []int    `json:"memory"` // MiB
	Held     []int    `json:"held"`
	VMs      []int    `json:"vms"`
	Warnings []int    `json:"warnings"`
	Seen     []int64  `json:"seen"` // seconds since 1970, to ten of them; 0: never
}

// seenStep is how exactly the map has when hosts were heard of: each would be news otherwise, every second.
const seenStep = 10

func mapOf(hosts []server.MappedHost) mapData {
	d := mapData{Cells: []string{}, Kinds: []string{}, Name: make([]string, 0, len(hosts))}
	for _, s := range hostStates {
		d.States = append(d.States, string(s))
	}
	for _, h := range hosts {
		d.Name = append(d.Name, h.Name)
		d.Cell = append(d.Cell, numberOf(&d.Cells, h.Cell))
		d.Kind = append(d.Kind, numberOf(&d.Kinds, h.Kind))
		d.State = append(d.State, slices.Index(hostStates, h.State))
		d.CPUs = append(d.CPUs, h.CPUs)
		d.Used = append(d.Used, h.UsedCPUs())
		d.Memory = append(d.Memory, int(h.Memory>>20))
		d.Held = append(d.Held, int(h.UsedMemory()>>20))
		d.VMs = append(d.VMs, h.Host.Used.VMs)
		d.Warnings = append(d.Warnings, h.Warnings)
		seen := int64(0)
		if !h.Seen.IsZero() {
			seen = h.Seen.Unix() / seenStep * seenStep
		}
		d.Seen = append(d.Seen, seen)
	}
	return d
}

// numberOf is the place of a text in a list, which gets it if it has it not. The last ones are looked at first: hosts
// are in the order of their cells.
func numberOf(list *[]string, text string) int {
	for i := len(*list) - 1; i >= 0; i-- {
		if (*list)[i] == text {
			return i
		}
	}
	*list = append(*list, text)
	return len(*list) - 1
}

// mapCache keeps maps encoded: many people look at the same one.
type mapCache struct {
	mu   sync.Mutex
	kept map[uint64]*mapEntry // by which hosts are on it
}

// mapEntry is one map, as it is sent.
type mapEntry struct {
	plain, packed []byte
	tag           string
	at            time.Time
}

const (
	mapAge   = 2 * time.Second // for which a map is good enough
	mapsKept = 32
)

func newMapCache() *mapCache { return &mapCache{kept: map[uint64]*mapEntry{}} }

// entry is the map of these hosts, or one of the same hosts that is new enough. Those who may see the same hosts may
// see the same map.
func (c *mapCache) entry(hosts []server.MappedHost, now time.Time) *mapEntry {
	sum := fnv.New64a()
	for _, h := range hosts {
		sum.Write([]byte(h.ID))
	}
	key := sum.Sum64()
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.kept[key]; e != nil && now.Sub(e.at) < mapAge && !now.Before(e.at) {
		return e
	}
	if len(c.kept) >= mapsKept {
		clear(c.kept)
	}
	e := encodeMap(mapOf(hosts))
	e.at = now
	c.kept[key] = e
	return e
}

func encodeMap(d mapData) *mapEntry {
	text, err := json.Marshal(d)
	if err != nil {
		panic(err) // of lists of numbers and texts
	}
	sum := fnv.New64a()
	sum.Write(text)
	e := &mapEntry{plain: text, tag: `"` + strconv.FormatUint(sum.Sum64(), 16) + `"`}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		panic(err) // of a level that there is
	}
	z.Write(text)
	z.Close()
	e.packed = packed.Bytes()
	return e
}
