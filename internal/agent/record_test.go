package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
)

// oldRecord is what the agent of before the tuned shapes kept of a VM on huge pages: it had one page size in the shape,
// and no CPUs that float or are held beside. A later agent may add fields.
const oldRecord = `{"Version":1,"VM":"v","Name":"grange-1a2b3c4d","Job":"j","Attempt":1,"Created":"2026-09-01T10:00:00Z","Image":"micro","Digest":"sha256:00",
"Shape":{"Name":"big","CPUs":2,"Memory":2147483648,"Scratch":0,"PageSize":2097152,"Network":"user","Guest":{"Sockets":1,"Cores":1,"Threads":2}},
"Plan":{"VCPUs":["4","20"],"Emulator":"0,16","IOThread":"0,16","Guest":{"Sockets":1,"Cores":1,"Threads":2},
"Cells":[{"VCPUs":"0-1","Memory":2147483648,"Node":1,"PageSize":2097152}],"Later":{"Field":[1]}},
"User":"alice","Command":"make","Caller":{"PID":0,"Start":0,"UID":1000,"GID":1000,"Groups":null,"CPUs":"","Memory":0},"Keep":true,"Later":"field"}`

// An upgrade of the agent finds VMs of the one before it running: what they hold must not be given away.
func TestOldRecord(t *testing.T) {
	r, err := decodeRecord([]byte(oldRecord))
	if err != nil {
		t.Fatal(err)
	}
	want := farm.Plan{VCPUs: []farm.CPUSet{farm.NewCPUSet(4), farm.NewCPUSet(20)}, Emulator: farm.NewCPUSet(0, 16),
		IOThread: farm.NewCPUSet(0, 16), Guest: farm.GuestTopology{Sockets: 1, Cores: 1, Threads: 2},
		Cells: []farm.GuestCell{{VCPUs: farm.NewCPUSet(0, 1), Memory: 2 * farm.GiB, Node: 1, PageSize: 2 * farm.MiB}}}
	if d := cmp.Diff(want, r.Plan, cmp.Comparer(farm.CPUSet.Equal)); d != "" {
		t.Errorf("plan (-want +got):\n%s", d)
	}
	if held := r.Plan.Held(); !held.Equal(farm.NewCPUSet(4, 20)) {
		t.Errorf("it holds %v", held)
	}
	if r.Shape.CPUs != 2 || r.Shape.Purpose != farm.PurposeCompute || r.Caller.UID != 1000 || !r.Keep {
		t.Errorf("%+v", r)
	}
}
