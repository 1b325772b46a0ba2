package metallab

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"time"
)

// ErrPanicked is of a host whose kernel gave up, and that has booted anew since: nothing of a test's is left there.
var ErrPanicked = errors.New("the host's kernel panicked")

// ErrReset is of a host that reset its processors without a word, and that was not asked to.
var ErrReset = errors.New("the host was reset")

// ErrSilent is of a host that runs and does not answer any more.
var ErrSilent = errors.New("the host does not answer")

// silence is how long a host may answer nothing on a connection that it has accepted: the busiest does within a minute.
const silence = 10 * time.Minute

// panics are what a kernel says that gives up. Behind the second one it hangs for minutes before it says the first.
var panics = regexp.MustCompile(`Kernel panic - not syncing|BUG: TASK stack guard page was hit`)

// watch ends what waits for a host whose kernel panics or hangs, or which is reset. Its network just goes silent.
func (h *Host) watch(ended chan struct{}) {
	for look, ask := time.NewTicker(time.Second), time.NewTicker(silence/20); ; {
		select {
		case <-ask.C:
			go h.ask(silence)
		case <-look.C:
			if text, _ := os.ReadFile(h.path("serial.log")); panics.Match(text) {
				h.panicked.Store(true)
				h.hangUp()
				return
			}
		case <-ended:
			h.hangUp()
			return
		}
	}
}

// ask has a host answer on its connection, and hangs up where it does not in time.
func (h *Host) ask(within time.Duration) {
	c := h.connected()
	if c == nil {
		return
	}
	answered := make(chan struct{})
	go func() {
		c.SendRequest("keepalive@openssh.com", true, nil) // ends with the connection, too
		close(answered)
	}()
	select {
	case <-answered:
	case <-time.After(within):
		if c == h.connected() {
			h.silent.Store(true)
			h.hangUp()
		}
	}
}

// wasReset reports whether QEMU has ended by itself, or does so while that is waited for.
func (h *Host) wasReset(wait time.Duration) bool {
	for end := time.Now().Add(wait); ; time.Sleep(50 * time.Millisecond) {
		select {
		case <-h.ended:
			return !h.leaving.Load()
		default:
			if time.Now().After(end) {
				return false
			}
		}
	}
}

// Cut reports whether the host panicked for a fault of the emulator, which says nothing about what was tested: QEMU
// delivers, once in some fifty VMs, an interrupt between the end of VMRUN and STGI, which must not be, for the
// processor's GS is the guest's until then. Page faults in the handlers of page faults follow, until the stack of the
// vCPU's thread is full. The kernel's trace names that place, or breaks off before it; or the host is reset without
// one. Or a processor ran into a breakpoint that is not there any more: the kernel puts one in the place of code that
// it changes, and takes it away when no processor can meet it, but QEMU's translation had it still. Or all processors
// go round and round without a word: what makes a host do so by itself does it again when the test is repeated.
func (h *Host) Cut() bool {
	if !h.panicked.Load() {
		return h.silent.Load() || h.wasReset(0)
	}
	trace := h.lastPanic()
	return strings.Contains(trace, "svm_vcpu_run") ||
		strings.Contains(trace, "stack guard page") && vcpuThread.MatchString(trace) || staleBreakpoint(trace)
}

var (
	vcpuThread = regexp.MustCompile(`Comm: CPU \d+/KVM`)
	breakpoint = regexp.MustCompile(`int3: 0000 \[#1\]`)
	// the byte before the one at which the processor is
	codeBefore = regexp.MustCompile(`Code: [0-9a-f ]*\b([0-9a-f]{2}) <`)
)

// staleBreakpoint reports whether the kernel died of a breakpoint (0xcc) where its memory has another instruction.
func staleBreakpoint(trace string) bool {
	code := codeBefore.FindStringSubmatch(trace)
	return breakpoint.MatchString(trace) && code != nil && code[1] != "cc"
}

// lastPanic is the end of the kernel's trace.
func (h *Host) lastPanic() string {
	text, _ := os.ReadFile(h.path("serial.log"))
	end := min(len(text), lastIndex(text)+3000)
	return string(text[max(0, end-9000):end])
}

// panicLine is what the kernel gave up with.
func (h *Host) panicLine() string {
	text, _ := os.ReadFile(h.path("serial.log"))
	line, _, _ := strings.Cut(string(text[lastIndex(text):]), "\n")
	return strings.TrimSpace(line)
}

// lastIndex is where the kernel last gave up.
func lastIndex(text []byte) int {
	all := panics.FindAllIndex(text, -1)
	if all == nil {
		return len(text)
	}
	return all[len(all)-1][0]
}
