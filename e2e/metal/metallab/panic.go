package metallab

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"time"
)

// ErrPanicked is of a host whose kernel gave up, and that has booted anew since: nothing of a test's is left there.
var ErrPanicked = errors.New("the host's kernel panicked")

const panicText = "Kernel panic - not syncing"

// watch ends what waits for a host whose kernel panics. Its network just goes silent.
func (h *Host) watch(ended chan struct{}) {
	for look := time.NewTicker(time.Second); ; {
		select {
		case <-look.C:
			if text, _ := os.ReadFile(h.path("serial.log")); bytes.Contains(text, []byte(panicText)) {
				h.panicked.Store(true)
				h.hangUp()
				return
			}
		case <-ended:
			return
		}
	}
}

// Cut reports whether the host panicked for a fault of the emulator, which says nothing about what was tested: QEMU
// delivers, once in some fifty VMs, an interrupt between the end of VMRUN and STGI, which must not be, for the
// processor's GS is the guest's until then. The kernel's trace names that place.
func (h *Host) Cut() bool {
	return h.panicked.Load() && strings.Contains(h.lastPanic(), "svm_vcpu_run")
}

// lastPanic is the end of the kernel's trace.
func (h *Host) lastPanic() string {
	text, _ := os.ReadFile(h.path("serial.log"))
	text = text[:max(0, bytes.LastIndex(text, []byte(panicText)))]
	return string(text[max(0, len(text)-6000):])
}
