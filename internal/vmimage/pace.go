package vmimage

import "context"

// Pace returns when n more bytes may come from a source.
type Pace func(ctx context.Context, n int) error

// SetPace bounds how fast the downloads of a store come. nil does not.
func SetPace(s *Store, p Pace) { s.pace = p }

// Follow returns what a download is to call with the bytes that have come so far, a block at a time: it waits for the
// pace. What an earlier run left is passed over.
func (p Pace) Follow(ctx context.Context) func(done int64) {
	last := int64(0)
	return func(done int64) {
		n := min(done-last, copyBlock)
		if last = done; n > 0 && p != nil {
			p(ctx, int(n)) // ends early with ctx, as the download does
		}
	}
}
