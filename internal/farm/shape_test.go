package farm

import (
	"reflect"
	"testing"
)

func TestShapeWith(t *testing.T) {
	base := Shape{CPUs: 1, Memory: GiB, Network: NetworkNone, Purpose: PurposeService, CPUModel: "Haswell",
		Threads: IsolateCores, Emulator: EmulatorIsolate, Cells: 2, Pages: []Bytes{GiB}, Cache: "none"}
	if same, err := base.With(Tuning{}); err != nil || !reflect.DeepEqual(same, base) {
		t.Errorf("no words: %+v, %v", same, err)
	}
	plain := Tuning{Purpose: "compute", CPUModel: "default", ThreadPolicy: "prefer", Emulator: "beside", NUMA: "auto",
		Pages: "0", Cache: "default"}
	if got, err := base.With(plain); err != nil ||
		!reflect.DeepEqual(got, Shape{CPUs: 1, Memory: GiB, Network: NetworkNone}) {
		t.Errorf("the names of the defaults: %+v, %v", got, err)
	}
	got, err := base.With(Tuning{NUMA: "none", Pages: "any"})
	if err != nil || got.Cells != 1 || !reflect.DeepEqual(got.Pages, []Bytes{GiB, 2 * MiB, 0}) ||
		got.CPUModel != "Haswell" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, words := range []Tuning{{Purpose: "fun"}, {CPUModel: "a b"}, {ThreadPolicy: "all"}, {Emulator: "far"},
		{NUMA: "-1"}, {NUMA: "65"}, {NUMA: "many"}, {Pages: "x"}, {Pages: "1G,1G"}, {Pages: "4M"}, {Pages: ","},
		{Cache: "much"}} {
		s, err := base.With(words)
		if err == nil {
			err = s.Validate()
		}
		if !isInvalid(err) {
			t.Errorf("%+v: %v, want an error with a hint", words, err)
		}
	}
}
