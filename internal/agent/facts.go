package agent

import (
	"fmt"
	"os"
	"strings"

	"github.com/grange-project/grange/internal/agent/facts"
	"github.com/grange-project/grange/internal/farm"
)

// facts are what the guest is told of its host and of its VM.
func (a requests) facts(r record) facts.Facts {
	c := a.config()
	a.mu.Lock()
	cpu := a.topo.CPU
	a.mu.Unlock()
	host, _ := os.Hostname()
	var out facts.Facts
	out.Add("HOST", host)
	out.Add("HOST_CPU_VENDOR", cpu.Vendor)
	out.Add("HOST_CPU_MODEL", cpu.Name)
	out.Add("HOST_CPU_FLAGS", strings.Join(cpu.Flags, " "))
	out.Add("HOST_CPUS", r.Plan.CPUs().String())
	out.Add("VM", r.VM)
	out.Add("VM_NAME", r.Name)
	out.Add("JOB", r.Job)
	out.Add("IMAGE", r.Image)
	out.Add("IMAGE_DIGEST", r.Digest)
	out.Add("CPUS", fmt.Sprint(r.Shape.CPUs))
	out.Add("MEMORY", fmt.Sprint(uint64(r.Plan.Memory()/farm.MiB)))
	if b := r.Caller.Batch; b.System != "" {
		out.Add("BATCH", string(b.System))
		out.Add("BATCH_JOB", b.Job)
	}
	if cpu.MaxMHz > 0 {
		out.Add("HOST_CPU_MHZ", fmt.Sprint(cpu.MaxMHz))
	}
	return append(out, facts.OfSite(c.Facts)...)
}

// readHook reads the site's script. A configured script that cannot be read keeps jobs from starting: it may set
// limits.
func (a requests) readHook() ([]byte, error) {
	path := a.config().Hook
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, &farm.Error{Kind: farm.Internal, Code: farm.CodeBadConfig,
			Message: "the site's hook cannot be read", Hint: "see hook in the agent's configuration", Err: err}
	}
	return text, nil
}
