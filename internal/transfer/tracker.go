package transfer

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/chunk"
)

// Tracker knows which hosts hold or fetch which files, as they said lately. It is one server's memory: hosts say it
// again, and what it does not know costs bytes of the source.
type Tracker struct {
	mu    sync.Mutex
	hosts map[string]hostFiles // by ID
}

type hostFiles struct {
	address string
	files   map[chunk.Sum]bool
	until   time.Time
}

const (
	// mostPeers are named at a time; any of them, so that hosts know different ones.
	mostPeers = 40
	// HoldsEvery is how often a host says what it holds; it is believed for a little more than twice that.
	HoldsEvery = 2 * time.Minute
	believed   = 5 * time.Minute
	mostFiles  = 4096 // of one host
)

// Has enters what a host holds or fetches, all of it. "": it gives nothing to others.
func (t *Tracker) Has(host, address string, files []chunk.Sum, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hosts == nil {
		t.hosts = map[string]hostFiles{}
	}
	h := hostFiles{address, map[chunk.Sum]bool{}, now.Add(believed)}
	for _, f := range files {
		h.files[f] = true
	}
	if address == "" || len(h.files) == 0 {
		delete(t.hosts, host)
		return
	}
	t.hosts[host] = h
}

// Peers returns some of those who hold or fetch a file, for one who wants it.
func (t *Tracker) Peers(file chunk.Sum, but string, now time.Time) []Peer {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []Peer
	for id, h := range t.hosts {
		if now.After(h.until) {
			delete(t.hosts, id)
		} else if id != but && h.files[file] {
			all = append(all, Peer{id, h.address})
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(len(all), mostPeers)]
}
