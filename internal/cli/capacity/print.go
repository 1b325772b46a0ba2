package capacity

import (
	"fmt"
	"time"

	"github.com/grange-project/grange/internal/capacity"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
)

// plan is what `grange capacity plan` says.
type plan struct {
	Days      float64          `json:"days"`
	Jobs      int              `json:"jobs"`
	NodeLimit int              `json:"node_limit"`
	Loss      bool             `json:"loss_given"`
	Now       capacity.Report  `json:"now"`
	Then      *capacity.Report `json:"then,omitempty"`
}

// row is one line, of a farm.
type row struct {
	name string
	text func(capacity.Report) string
}

// share is a part of what is installed, in per cent.
func share(name string, of func(capacity.Report) float64) row {
	return row{name, func(r capacity.Report) string { return fmt.Sprintf("%.1f %%", 100*of(r)/r.Installed) }}
}

func count(name string, of func(capacity.Report) int) row {
	return row{name, func(r capacity.Report) string { return fmt.Sprint(of(r)) }}
}

func (p plan) rows() []row {
	type R = capacity.Report
	seconds := func(s float64) string { return (time.Duration(s) * time.Second).String() }
	return []row{
		{"installed", func(r R) string { return fmt.Sprintf("%.0f CPU hours", r.Installed) }},
		share("delivered to jobs", func(r R) float64 { return r.Delivered }),
		share("lost to the size of VMs", func(r R) float64 { return r.Overhead }),
		share("  CPUs held beside VMs", func(r R) float64 { return r.Beside }),
		share("  mix: too few CPUs free", func(r R) float64 { return r.Mix }),
		share("  memory: too little free", func(r R) float64 { return r.Memory }),
		share("  NUMA: free, in pieces", func(r R) float64 { return r.Pieces }),
		share("  reserved for hosts", func(r R) float64 { return r.Reserved }),
		share("  drained", func(r R) float64 { return r.Drained }),
		share("  broken", func(r R) float64 { return r.Broken }),
		share("  jobs that began anew", func(r R) float64 { return r.Repeated }),
		share("  idle: no job waits", func(r R) float64 { return r.Idle }),
		count("jobs ended", func(r R) int { return r.Ended }),
		count("jobs running at the end", func(r R) int { return r.Running }),
		count("jobs waiting at the end", func(r R) int { return r.Waiting }),
		count("jobs that fit no host", func(r R) int { return r.Impossible }),
		{"wait, median", func(r R) string { return seconds(r.WaitMedian) }},
		{"wait, 95 of 100", func(r R) string { return seconds(r.Wait95) }},
		count("VMs or jobs at a time, at most", func(r R) int { return r.MostVMs }),
		{"their memory, at most", func(r R) string {
			return fmt.Sprintf("%v of %v", r.MostMemory/farm.GiB*farm.GiB, r.AllMemory/farm.GiB*farm.GiB)
		}},
		{"nodes of the batch system", func(r R) string {
			return fmt.Sprintf("%d (%s)", r.Nodes, farm.Count((r.Nodes+p.NodeLimit-1)/p.NodeLimit, "instance"))
		}},
	}
}

func (p plan) print(a *app.App) error {
	fmt.Fprintf(a.Out, "%s in %.1f days\n", farm.Count(p.Jobs, "job"), p.Days)
	w := output.NewColumns(a.Out)
	if p.Then != nil {
		fmt.Fprintln(w, "\tAS IT IS\tSO CHANGED")
	}
	for _, r := range p.rows() {
		cells := []any{r.name, r.text(p.Now)}
		if p.Then != nil {
			cells = append(cells, r.text(*p.Then))
		}
		w.Row(cells...)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if !p.Loss {
		_, err := fmt.Fprintln(a.Out, "what VMs lose by their size is not known: `grange bench run` measures it, for --loss")
		return err
	}
	return nil
}
