package machine

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/numa"
)

// sight is what a machine's guest reports of its CPUs and memory, beside what was planned. A guest may report what it
// likes, and as often: whoever waits is told of a difference once.
type sight struct {
	compare func(farm.GuestView) []string // with the plan; set before the machine runs
	notice  func(text string)             // is called at the first difference; nil: nobody wants to know

	mu      sync.Mutex
	seen    *farm.GuestView // nil: it has reported nothing, as an older grange-guest
	differs []string
	told    bool
}

func (s *sight) take(v farm.GuestView) {
	if s.compare == nil {
		return
	}
	differs := s.compare(v)
	s.mu.Lock()
	s.seen, s.differs = &v, differs
	tell := len(differs) > 0 && !s.told
	s.told = s.told || tell
	s.mu.Unlock()
	if tell && s.notice != nil {
		s.notice("the guest sees another machine than was planned: " + strings.Join(differs, "; "))
	}
}

// wrong is how the guest's report differs from the plan.
func (s *sight) wrong() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.differs
}

// view is the report as others see it; nil where there is none.
func (s *sight) view() *api.GuestView {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		return nil
	}
	shape := numa.GuestShape(*s.seen)
	out := &api.GuestView{Sockets: shape.Sockets, Cores: shape.Cores, Threads: shape.Threads,
		Clock: farm.Clean(s.seen.Clock, maxClock), Differs: s.differs}
	for _, n := range s.seen.Nodes {
		out.Nodes = append(out.Nodes, api.GuestNode{CPUs: n.CPUs.String(), Memory: uint64(n.Memory)})
	}
	for _, size := range s.seen.Pages {
		out.Pages = append(out.Pages, uint64(size))
	}
	return out
}

// maxClock bounds what is shown of a clocksource's name, in bytes: CS_NAME_LEN of the kernel.
const maxClock = 32

// guestDiffers compares a guest's report with the plan and with what the hypervisor applied; cpu is the host's.
func guestDiffers(plan farm.Plan, x hyper.Applied, cpu farm.CPUModel, v farm.GuestView) []string {
	out := numa.GuestDiffers(plan, v)
	if x.Accelerator != "kvm" {
		return out
	}
	if v.Clock != "" && !slices.Contains(fastClocks, v.Clock) {
		clock := farm.Clean(v.Clock, maxClock)
		out = append(out, fmt.Sprintf("the guest's clock is %q: each look at it leaves the guest", clock))
	}
	if x.CPUMode == "host-passthrough" && len(v.Flags) > 0 {
		lacks := slices.DeleteFunc(slices.Clone(cpu.Flags), func(flag string) bool {
			return !isInstruction(flag) || slices.Contains(v.Flags, flag)
		})
		if len(lacks) > 0 {
			out = append(out, "the guest lacks of the host's CPU: "+strings.Join(lacks, " "))
		}
	}
	return out
}

// fastClocks are read without leaving the guest.
var fastClocks = []string{"kvm-clock", "tsc", "tsc-early"}

// instructions begin the flags of what programs choose their code by, and of what makes memory or time cheap. Others
// are the host's own.
var instructions = []string{"3dnow", "abm", "adx", "aes", "amx_", "avx", "bmi", "cldemote", "clflushopt", "clwb",
	"clzero", "cx16", "erms", "f16c", "fma", "fsgsbase", "fsrm", "gfni", "misalignsse", "movbe", "movdir",
	"nonstop_tsc", "pclmulqdq", "pdpe1gb", "pni", "popcnt", "rdpid", "rdrand", "rdseed", "serialize", "sha", "sm3",
	"sm4", "sse", "ssse3", "vaes", "vpclmulqdq", "xop", "xsave"}

func isInstruction(flag string) bool {
	return slices.ContainsFunc(instructions, func(prefix string) bool { return strings.HasPrefix(flag, prefix) })
}
