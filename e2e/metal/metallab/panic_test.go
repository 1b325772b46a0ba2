package metallab

import (
	"os"
	"testing"
)

// TestCut distinguishes panics that are the emulator's from those of the host's own kernel.
func TestCut(t *testing.T) {
	const panicked = "[  657.1] Kernel panic - not syncing: corrupted stack end detected inside scheduler\n"
	for name, c := range map[string]struct {
		serial string
		cut    bool
	}{
		"whole trace":  {"[ 1] BUG: unable to handle page fault\n[ 1]  svm_vcpu_run+0x1/0x2\n" + panicked, true},
		"full stack":   {"[ 1] BUG: TASK stack guard page was hit at 00\n[ 1] CPU: 0 PID: 28 Comm: CPU 0/KVM Not\n", true},
		"another task": {"[ 1] BUG: TASK stack guard page was hit at 00\n[ 1] CPU: 0 PID: 28 Comm: sh Not\n", false},
		"stale trap":   {"[ 1] Oops: int3: 0000 [#1] SMP\n[ 1] Code: 0f 1f 44 00 00 e9 <5a> 01\n" + panicked, true},
		"trap":         {"[ 1] int3: 0000 [#1] SMP\n[ 1] Code: 0f 1f 44 00 00 cc <5a> 01\n" + panicked, false},
		"sysrq":        {"[ 1] sysrq: Trigger a crash\n" + panicked, false},
	} {
		h := &Host{Dir: t.TempDir()}
		if err := os.WriteFile(h.path("serial.log"), []byte("Booting\n"+c.serial), 0o600); err != nil {
			t.Fatal(err)
		}
		if !panics.MatchString(c.serial) {
			t.Errorf("%s: nobody takes notice", name)
		}
		h.panicked.Store(true)
		if h.Cut() != c.cut {
			t.Errorf("%s: the emulator's fault: %v", name, !c.cut)
		}
	}
}
