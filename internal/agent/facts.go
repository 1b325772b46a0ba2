package agent

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// factsPath is where a guest finds what its host is. Accounting and some experiments need the real processor, whatever
// model the VM shows.
const factsPath = "/etc/grange/host"

// fact is one line of that file, and one variable GRANGE_KEY of the job.
type fact struct{ key, value string }

type facts []fact

func (a requests) facts(r record) facts {
	c := a.config()
	a.mu.Lock()
	cpu := a.topo.CPU
	a.mu.Unlock()
	host, _ := os.Hostname()
	out := facts{
		{"HOST", host},
		{"HOST_CPU_VENDOR", cpu.Vendor},
		{"HOST_CPU_MODEL", cpu.Name},
		{"HOST_CPU_FLAGS", strings.Join(cpu.Flags, " ")},
		{"HOST_CPUS", r.Plan.CPUs().String()},
		{"VM", r.VM},
		{"VM_NAME", r.Name},
		{"JOB", r.Job},
		{"IMAGE", r.Image},
		{"IMAGE_DIGEST", r.Digest},
		{"CPUS", fmt.Sprint(r.Shape.CPUs)},
		{"MEMORY", fmt.Sprint(uint64(r.Plan.Memory() / farm.MiB))},
	}
	if b := r.Caller.Batch; b.System != "" {
		out = append(out, fact{"BATCH", string(b.System)}, fact{"BATCH_JOB", b.Job})
	}
	if cpu.MaxMHz > 0 {
		out = append(out, fact{"HOST_CPU_MHZ", fmt.Sprint(cpu.MaxMHz)})
	}
	keys := make([]string, 0, len(c.Facts))
	for k := range c.Facts {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		out = append(out, fact{strings.ToUpper(k), c.Facts[k]})
	}
	return out
}

// environment leaves out the long list of flags: it is in the file.
func (f facts) environment() []string {
	var env []string
	for _, x := range f {
		if x.key != "HOST_CPU_FLAGS" {
			env = append(env, "GRANGE_"+x.key+"="+x.value)
		}
	}
	return env
}

// file has one KEY=VALUE a line, without quotes.
func (f facts) file() []byte {
	var b strings.Builder
	for _, x := range f {
		fmt.Fprintf(&b, "%s=%s\n", x.key, strings.ReplaceAll(x.value, "\n", " "))
	}
	return []byte(b.String())
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
