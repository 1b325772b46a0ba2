package demand

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/grange-project/grange/internal/capacity"
	"github.com/grange-project/grange/internal/farm"
)

// step is the time between two events of a trace, which has none: only their order.
const step = time.Minute

// readTrace reads VMs that arrive and depart, in an order.
func readTrace(r io.Reader) (out Recorded, err error) {
	var t struct {
		Events []struct {
			Event     string `json:"ev"`
			ID        int
			VCPUs     int
			MemoryMiB int64 `json:"mem_mb"`
		}
	}
	if err := json.NewDecoder(r).Decode(&t); err != nil {
		return out, invalid(err.Error())
	}
	out.Until = time.Duration(len(t.Events)) * step
	jobs := map[int]int{}
	for i, e := range t.Events {
		at := time.Duration(i) * step
		switch n, running := jobs[e.ID]; {
		case e.Event == "arrive" && !running && e.VCPUs > 0 && e.MemoryMiB > 0 && e.MemoryMiB < 1<<40:
			jobs[e.ID] = len(out.Jobs)
			out.Jobs = append(out.Jobs, capacity.Job{Submit: at, Wall: out.Until - at, CPUs: e.VCPUs,
				Memory: farm.Bytes(e.MemoryMiB) * farm.MiB})
		case e.Event == "depart" && running:
			out.Jobs[n].Wall = at - out.Jobs[n].Submit
			delete(jobs, e.ID)
		default:
			return out, invalid(fmt.Sprintf("event %d of the trace makes no sense", i+1))
		}
	}
	if len(out.Jobs) == 0 {
		return out, invalid("the trace has no VMs")
	}
	return out, nil
}
