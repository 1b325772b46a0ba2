package slurm

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/grange-project/grange/internal/program"
)

// window is how much time of ended jobs one sacct is asked for. slurmdbd remembers years, and sacct cannot print a
// month of a large cluster in time. Each window is read once for every few hundred jobs that are handed out.
type window struct{ seconds atomic.Int64 }

const (
	firstWindow = 24 * time.Hour
	// leastWindow: a window goes back by lateness, and must get on.
	leastWindow = 2 * lateness
	mostWindow  = 100 * 365 * 24 * time.Hour
)

func (w *window) size() time.Duration {
	if s := w.seconds.Load(); s > 0 {
		return time.Duration(s) * time.Second
	}
	return firstWindow
}

// read tells it what came of the last one, of which so many jobs can be handed out.
func (w *window) read(jobs, limit int, err error) {
	const many = 20 // times what is handed out: each is read so often
	size := w.size()
	switch {
	case errors.Is(err, program.ErrTooMuch), errors.Is(err, program.ErrTooLong), jobs > many*limit:
		size /= 2
	case err == nil && jobs < limit:
		size *= 2
	}
	w.seconds.Store(int64(min(max(size, leastWindow), mostWindow) / time.Second))
}
