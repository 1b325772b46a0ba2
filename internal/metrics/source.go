package metrics

import (
	"sync"
	"time"
)

// The times of a source.
const (
	readWithin = 700 * time.Millisecond // that a scrape waits for one; scrapers give up after some seconds
	readAgain  = time.Second            // several scrapers at a time cost one reading
	readLast   = 5 * time.Minute        // after which figures that were not read again say nothing any more
)

// source is one place where figures come from, which may hang.
type source struct {
	name string
	read func() (Reading, error)

	mu      sync.Mutex
	reading chan struct{} // closed when it has been read; nil: it is not being read
	put     Reading       // nil: it was never read
	at      time.Time     // of put
	failed  bool          // the last attempt
}

// reading is what a source has to say.
type reading struct {
	put   Reading // nil: nothing
	at    time.Time
	fresh bool // it was read for this scrape, or just before
}

// get reads the source, or waits a moment for whoever does so already: one that hangs is asked once.
func (s *source) get() reading {
	s.mu.Lock()
	if s.reading == nil && (s.failed || time.Since(s.at) >= readAgain) {
		done := make(chan struct{})
		s.reading = done
		go s.fetch(done)
	}
	done := s.reading
	s.mu.Unlock()
	if done != nil {
		late := time.NewTimer(readWithin)
		defer late.Stop()
		select {
		case <-done:
		case <-late.C:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := reading{put: s.put, at: s.at, fresh: s.reading == nil && !s.failed}
	if r.put != nil && time.Since(r.at) > readLast {
		r.put = nil
	}
	return r
}

func (s *source) fetch(done chan struct{}) {
	at := time.Now()
	put, err := s.read()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed = err != nil; err == nil {
		s.put, s.at = put, at
	}
	s.reading = nil
	close(done)
}
