package gateways

import (
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

func TestLoad(t *testing.T) {
	good := benchFlags{size: "1G", files: 10, time: time.Second, rounds: 1}
	o, err := good.load()
	if err != nil || o.Size != 1<<30 || o.Files != 10 || o.Dir != target || o.Time != time.Second {
		t.Errorf("%+v, %v", o, err)
	}
	for name, change := range map[string]func(*benchFlags){
		"no size": func(f *benchFlags) { f.size = "" }, "a small one": func(f *benchFlags) { f.size = "1K" },
		"no files": func(f *benchFlags) { f.files = 0 }, "no time": func(f *benchFlags) { f.time = 0 },
		"no rounds": func(f *benchFlags) { f.rounds = 0 }, "many": func(f *benchFlags) { f.rounds = 101 },
	} {
		f := good
		change(&f)
		if _, err := f.load(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestMeasurer: root is not measured as, by its name or by the directory.
func TestMeasurer(t *testing.T) {
	if _, _, err := (benchFlags{user: "root"}).measurer(t.Context()); !farm.IsCode(err, "gateway-bench") {
		t.Error(err)
	}
	u, groups, err := benchFlags{dir: "/"}.measurer(t.Context())
	if err != nil || u.Name != "nobody" || u.UID == 0 || len(groups) == 0 {
		t.Errorf("%+v, %v, %v", u, groups, err)
	}
}

func TestTypeOf(t *testing.T) {
	if got, err := typeOf("/proc"); err != nil || got != "proc" {
		t.Errorf("%q, %v", got, err)
	}
}
