package cloud

import (
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// TestCloudNext is what is done next, as a table.
func TestCloudNext(t *testing.T) {
	claimed := farm.Plan{VCPUs: []farm.CPUSet{farm.NewCPUSet(0)}}
	one := 1
	for _, c := range []struct {
		name          string
		r             record
		power         farm.Power
		boots, builds int
		fresh         int
		off, on       step // when no machine runs, and when one does
	}{
		{"new", record{}, farm.PowerOn, 0, 0, 0, stepBuild, stepStop},
		{"new, to be off", record{}, farm.PowerOff, 0, 0, 0, stepBuild, stepStop},
		{"refused", record{Halt: haltFailed}, farm.PowerOn, 0, 0, 0, stepNone, stepNone},
		{"refused, deleted", record{Halt: haltFailed}, farm.PowerDeleted, 0, 0, 0, stepDelete, stepDelete},
		{"claimed", record{Plan: claimed, Digest: "x"}, farm.PowerOn, 0, 0, 0, stepStart, stepNone},
		{"to be off", record{Plan: claimed, Digest: "x"}, farm.PowerOff, 0, 0, 0, stepNone, stepStop},
		{"to restart", record{Plan: claimed, Digest: "x"}, farm.PowerOn, 1, 0, 0, stepStart, stepStop},
		{"restarted while off", record{Plan: claimed, Digest: "x"}, farm.PowerOff, 1, 0, 0, stepNone, stepStop},
		{"powered off", record{Plan: claimed, Digest: "x", Halt: haltOff}, farm.PowerOn, 0, 0, 0,
			stepNone, stepNone},
		{"to resize", record{Plan: claimed, Digest: "x"}, farm.PowerOn, 0, 1, 0, stepBuild, stepBuild},
		{"to rebuild", record{Plan: claimed, Digest: "x"}, farm.PowerOn, 0, 1, 1, stepBuild, stepStop},
		{"resize refused", record{Plan: claimed, Digest: "x", Refused: &one}, farm.PowerOn, 0, 1, 0,
			stepStart, stepNone},
		{"and asked again", record{Plan: claimed, Digest: "x", Refused: &one}, farm.PowerOn, 0, 2, 0,
			stepBuild, stepBuild},
		{"without its job", record{Plan: claimed, Digest: "x", Job: "slurm/7"}, farm.PowerOff, 0, 0, 0,
			stepYield, stepStop},
		{"yielded", record{Plan: claimed, Digest: "x", Yielded: true}, farm.PowerOff, 0, 0, 0, stepNone, stepStop},
		{"yielded, and wanted without a job", record{Plan: claimed, Digest: "x", Yielded: true}, farm.PowerOn, 0,
			0, 0, stepBuild, stepNone},
	} {
		c.r.Wanted = fleet.WantedVM{Power: string(c.power), Boots: c.boots, Builds: c.builds, Fresh: c.fresh}
		if off, on := c.r.next(false), c.r.next(true); off != c.off || on != c.on {
			t.Errorf("%s: %q when it is off and %q when it runs, want %q and %q", c.name, off, on, c.off, c.on)
		}
	}
}

// TestCloudCrashes: the pauses double, and in the end nobody tries again.
func TestCloudCrashes(t *testing.T) {
	v := newVM(New(Options{}), api.NewID())
	var r record
	for n := 1; n <= maxFailures; n++ {
		v.ending.noteEnd(&r, hyper.Failed, time.Second, "why")
		if pause := time.Until(v.until); r.Halt != haltNone || r.Failures != n || pause > firstPause<<(n-1) ||
			pause < firstPause<<(n-1)-time.Second {
			t.Fatalf("%d: %+v, pause %v", n, r, pause)
		}
	}
	v.ending.noteEnd(&r, "", time.Second, "why")
	if r.Halt != haltFailed || r.Reason != "why" {
		t.Errorf("%+v", r)
	}
	if r = (record{Failures: maxFailures}); true {
		v.ending.noteEnd(&r, hyper.Failed, calmAfter+1, "why")
	}
	if r.Halt != haltNone || r.Failures != 1 {
		t.Errorf("after a calm life: %+v", r)
	}
}
