package transfer

import (
	"context"
	"io"
	"sync"
	"time"
)

// Rate bounds bytes a second, of all who share it. The zero value, and nil, bound nothing.
type Rate struct {
	mu     sync.Mutex
	each   float64 // bytes a second; 0: any number
	filled time.Time
	tokens float64 // below zero: somebody waits
}

// NewRate returns a bound of so many bytes a second; 0: none.
func NewRate(each int64) *Rate {
	r := &Rate{}
	r.Set(each)
	return r
}

// Set changes the bound.
func (r *Rate) Set(each int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.each = float64(each)
}

// take takes tokens for n bytes and returns how long to wait for them. A tenth of a second may come at once.
func (r *Rate) take(n int, now time.Time) time.Duration {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.each <= 0 {
		return 0
	}
	r.tokens = min(r.tokens+now.Sub(r.filled).Seconds()*r.each, r.each/10)
	r.filled = now
	r.tokens -= float64(n)
	if r.tokens >= 0 {
		return 0
	}
	return time.Duration(-r.tokens / r.each * float64(time.Second))
}

// Wait returns when n more bytes may go.
func (r *Rate) Wait(ctx context.Context, n int) error {
	d := r.take(n, time.Now())
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ratedReader reads no faster than a rate.
type ratedReader struct {
	ctx  context.Context
	from io.Reader
	rate *Rate
	read int64
}

func (r *ratedReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p[:min(len(p), 64<<10)])
	r.read += int64(n)
	if wait := r.rate.Wait(r.ctx, n); err == nil {
		err = wait
	}
	return n, err
}
