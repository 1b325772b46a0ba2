package agent

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// Jobs that a batch system runs on the host ask us for nothing. Where it confines them, the host itself tells what each
// may use: that is read whenever the ledger plans, and kept from VMs, so that nothing has to be started for a job on
// metal to say so.

// metalJobs are those jobs, as they were read last.
type metalJobs struct {
	mu   sync.Mutex
	read func() []farm.Allotment
	jobs []farm.Allotment
	at   time.Time // when they were read
}

// running returns them. They are read again after a moment: with a hundred jobs that takes some ten milliseconds, and a
// ledger whose queue moves asks often. A job on the host that starts within the moment is no worse off than one that
// starts right behind it. But the job key, whose VM is to be placed, has to be among them: a list from before its start
// would have it wait for room that its batch system has given it.
func (m *metalJobs) running(key string) []farm.Allotment {
	const moment = 300 * time.Millisecond
	m.mu.Lock()
	defer m.mu.Unlock()
	known := !strings.HasPrefix(key, string(farm.Slurm)+"/") || hasKey(m.jobs, key)
	if known && time.Since(m.at) < moment {
		return m.jobs
	}
	m.jobs, m.at = m.read(), time.Now()
	return m.jobs
}

// has reports whether a batch system has this job here, where it confines any.
func (m *metalJobs) has(key string) bool { return hasKey(m.running(key), key) }

func hasKey(jobs []farm.Allotment, key string) bool {
	return slices.ContainsFunc(jobs, func(j farm.Allotment) bool { return j.Key() == key })
}
