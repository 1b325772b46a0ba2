package usage

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/bench"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// mostStarts is how many records one comparison reads: the newest.
const mostStarts = 50000

// SlowHosts are hosts on which guests boot more slowly than on others of their kind, by the records of jobs and workers
// that ended since a time, that the caller may see. Booting is the one thing that all hosts do alike, whatever runs.
func (s *Usage) SlowHosts(ctx context.Context, who farm.Identity, cell string,
	since time.Time) (out fleet.SlowHosts, err error) {
	var bodies [][]byte
	err = s.Actions.Look(ctx, who, policy.ReadUsage, func(c *action.Call) (err error) {
		q := store.UsageRecent{Since: since, Kinds: []string{api.UsageJob, api.UsageWorker}, Cell: cell,
			Limit: mostStarts}
		if q.Sees, err = s.sees(c); err == nil {
			bodies, err = c.RecentUsage(q)
		}
		return err
	})
	if err != nil {
		return out, err
	}
	starts, err := startsOf(bodies)
	if err != nil {
		return out, err
	}
	slow, compared := bench.SlowHosts(starts)
	out = fleet.SlowHosts{Since: since, Starts: len(starts), Compared: compared, Items: []fleet.SlowHost{},
		Cut: len(bodies) == mostStarts}
	for _, h := range slow {
		out.Items = append(out.Items, fleet.SlowHost{Host: h.Host, Kind: h.Kind, Image: h.Image, CPUs: h.CPUs,
			Starts: h.Starts, Boot: h.Boot, PeerHosts: h.Hosts, PeerBoot: h.Peers, Ratio: h.Ratio(), P: h.P})
	}
	return out, nil
}

// startsOf are the starts of records that went well at the first attempt.
func startsOf(bodies [][]byte) (starts []bench.Start, err error) {
	for _, body := range bodies {
		var u api.Usage
		if err := json.Unmarshal(body, &u); err != nil {
			return nil, err
		}
		boots, took := 0, 0.0
		for _, p := range u.Phases {
			if p.Name == "boot" {
				boots++
				took = p.Milliseconds / 1000
			}
		}
		if boots == 1 {
			starts = append(starts, bench.Start{Host: u.Host, Kind: u.Hardware, Image: cmp.Or(u.Image, u.Digest),
				CPUs: u.Cores, Boot: took})
		}
	}
	return starts, nil
}
