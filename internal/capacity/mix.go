package capacity

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// Mix is kinds of jobs that a farm has.
type Mix []Kind

// Kind is jobs of one size. Their durations are exponentially distributed.
type Kind struct {
	CPUs   int
	Memory farm.Bytes
	Mean   time.Duration
	Share  float64 // of all jobs, beside the shares of the others
}

// ParseMix reads kinds as 8x16G@6h=70,1x2G@3h=30.
func ParseMix(text string) (m Mix, err error) {
	for part := range strings.SplitSeq(text, ",") {
		k, err := parseKind(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		m = append(m, k)
	}
	return m, nil
}

func parseKind(text string) (k Kind, err error) {
	wrong := demand(fmt.Sprintf("invalid kind of jobs %q", text),
		"write CPUSxMEMORY@DURATION=SHARE, for example 8x16G@6h=70")
	size, share, weighted := strings.Cut(text, "=")
	size, mean, ok := strings.Cut(size, "@")
	cpus, memory, ok2 := strings.Cut(size, "x")
	if !ok || !ok2 {
		return k, wrong
	}
	k.Share = 1
	var errs [4]error
	if weighted {
		k.Share, errs[0] = strconv.ParseFloat(share, 64)
	}
	k.CPUs, errs[1] = strconv.Atoi(cpus)
	k.Memory, errs[2] = farm.ParseBytes(memory)
	k.Mean, errs[3] = time.ParseDuration(mean)
	if cmp.Or(errs[:]...) != nil || k.CPUs < 1 || k.CPUs > farm.MaxCPUs || !(k.Share > 0 && k.Share < 1e9) ||
		k.Mean < time.Second || k.Memory < farm.MinMemory {
		return k, wrong
	}
	return k, nil
}

// Jobs are as many of the mix, at random times, as ask for a share of so many CPUs. The same seed makes the same jobs.
func (m Mix) Jobs(load float64, cpus int, until time.Duration, seed uint64) ([]Job, error) {
	var shares, each float64
	for _, k := range m {
		shares += k.Share
		each += k.Share * float64(k.CPUs) * k.Mean.Seconds()
	}
	count := load * float64(cpus) * until.Seconds() / (each / shares)
	if !(count >= 1 && count <= MaxJobs) {
		return nil, demand(fmt.Sprintf("%.0f jobs make no replay", count), "choose another load, mix or time")
	}
	random := rand.New(rand.NewPCG(seed, 0))
	jobs := make([]Job, int(math.Round(count)))
	for i := range jobs {
		k := m.pick(random.Float64() * shares)
		wall := min(random.ExpFloat64(), 8) * k.Mean.Seconds()
		jobs[i] = Job{Submit: time.Duration(random.Float64() * float64(until)).Truncate(time.Second),
			Wall: max(time.Duration(wall)*time.Second, time.Second), CPUs: k.CPUs, Memory: k.Memory}
	}
	slices.SortStableFunc(jobs, func(a, b Job) int { return cmp.Compare(a.Submit, b.Submit) })
	return jobs, nil
}

func (m Mix) pick(at float64) Kind {
	for _, k := range m {
		if at -= k.Share; at < 0 {
			return k
		}
	}
	return m[len(m)-1]
}

// Breaks are outages at random: that share of hosts is away at any time, each for so long.
func Breaks(share float64, hosts int, each, until time.Duration, broken bool, seed uint64) []Outage {
	random := rand.New(rand.NewPCG(seed, 1))
	count := share * float64(hosts) * until.Seconds() / each.Seconds()
	var out []Outage
	for range int(math.Round(count)) {
		from := time.Duration(random.Float64() * float64(until)).Truncate(time.Second)
		out = append(out, Outage{Host: random.IntN(hosts), From: from, To: from + each, Broken: broken})
	}
	return out
}
